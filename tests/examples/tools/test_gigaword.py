"""The archive of Rush et al.: its splits, and malformed files."""

import tarfile

import pytest
from gigaword import every, normalise, write_splits

from tests.examples import miniatures, summary_miniatures
from tests.examples.miniatures import lines


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gigaword")
    summary_miniatures.gigaword(folder)
    return folder / "sent-summary.tar.gz"


@pytest.fixture
def text(archive, tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    return folder, list(write_splits(archive, folder, miniatures.VALID))


def test_words_are_normalised_and_lines_drawn_at_even_distances():
    assert normalise("The  <unk> of UNK in 1,984") == "the UNK of UNK in #,###"
    assert sorted(every(10, 5)) == [0, 2, 4, 6, 8]
    assert sorted(every(3, 8)) == [0, 1, 2]
    assert len(every(189651, 8000)) == 8000


def test_the_splits_are_those_of_the_archive(text):
    folder, messages = text
    train, *others = messages
    assert train == f"train: {miniatures.TRAIN - 1} pairs; left out 1 with an empty side"
    sizes = {"valid": miniatures.VALID, "test": miniatures.TEST, "duc2004": miniatures.TEST}
    assert others == [f"{name}: {size} pairs" for name, size in sizes.items()]
    articles = lines(folder / "train.article")
    assert any("UNK" in line.split() for line in articles)
    assert not any("<unk>" in line for line in articles)
    # Each annotator's summary is a reference as in the archive, with its capitals
    first, *others = [lines(folder / f"duc2004.reference{number}") for number in range(4)]
    assert lines(folder / "duc2004.summary") == [normalise(line) for line in first] != first
    assert all(len(other) == miniatures.TEST and other != first for other in others)
    assert not (folder / "train.reference0").exists()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train/train.article.txt.gz", lambda old: old[:-30]),
        ("Giga/input.txt", lambda old: b"one\n"),
        ("Giga/input.txt", lambda old: b"\xff" + old),
    ],
)
def test_a_malformed_file_is_named(name, damage, archive, tmp_path):
    with tarfile.open(archive) as opened:
        members = {entry.name: opened.extractfile(entry).read() for entry in opened}
    members[f"sumdata/{name}"] = damage(members[f"sumdata/{name}"])
    miniatures.write_tar(tmp_path / "a.tgz", members)
    with pytest.raises(ValueError, match=rf"{name} and .* cannot be read together"):
        list(write_splits(tmp_path / "a.tgz", tmp_path, 8))
