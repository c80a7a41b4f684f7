"""The archive of Rush et al.: its splits, packed and unpacked, and what is wrong with one."""

from __future__ import annotations

import gzip
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
def unpacked(archive, tmp_path):
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    return tmp_path / "sumdata"


@pytest.fixture
def text(archive, tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    return folder, list(write_splits(archive, folder, miniatures.VALID))


def test_words_are_in_small_letters_with_signs_and_lines_drawn_at_even_distances():
    assert normalise("The  <unk> of UNK in 1,984") == "the UNK of UNK in #,###"
    assert sorted(every(10, 5)) == [0, 2, 4, 6, 8]
    assert sorted(every(3, 8)) == [0, 1, 2]
    assert len(every(189651, 8000)) == 8000


def test_the_splits_are_those_of_the_archive(text):
    folder, said = text
    assert said == [
        f"train: {miniatures.TRAIN - 1} pairs; left out 1 with an empty side",
        f"valid: {miniatures.VALID} pairs",
        f"test: {miniatures.TEST} pairs",
        f"duc2004: {miniatures.TEST} pairs",
    ]
    articles = lines(folder / "train.article")
    assert any("UNK" in line.split() for line in articles)
    assert not any("<unk>" in line for line in articles)
    # Every person's summary is a reference as the archive has it, with its capitals
    first, *others = [lines(folder / f"duc2004.reference{number}") for number in range(4)]
    assert lines(folder / "duc2004.summary") == [normalise(line) for line in first] != first
    assert all(len(other) == miniatures.TEST and other != first for other in others)
    assert not (folder / "train.reference0").exists()


def test_the_unpacked_folder_gives_the_same(text, unpacked, tmp_path):
    title = unpacked / "train" / "train.title.txt.gz"
    title.with_suffix("").write_bytes(gzip.decompress(title.read_bytes()))
    title.unlink()
    again = tmp_path / "again"
    again.mkdir()
    folder, said = text
    assert list(write_splits(unpacked, again, miniatures.VALID)) == said
    for path in folder.iterdir():
        assert (again / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("train/train.article.txt.gz", None, r"has no file train/train\.article\.txt\.gz: it is"),
        ("train/train.article.txt.gz", lambda old: old[:-30], r"are cut short or damaged"),
        ("Giga/input.txt", lambda old: b"one\n", r"Giga/input\.txt and .* different numbers of"),
        (
            "Giga/input.txt",
            lambda old: b"\xff" + old,
            r"Giga/input\.txt and .*: a line is no UTF-8",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said(name, damage, message, unpacked, tmp_path):
    path = unpacked / name
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=message):
        list(write_splits(unpacked, tmp_path, 8))
