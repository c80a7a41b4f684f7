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
        for entry in opened:
            path = tmp_path / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(opened.extractfile(entry).read())
    return tmp_path / "sumdata"


@pytest.fixture
def text(archive, tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    return folder, list(write_splits(archive, folder, miniatures.VALID))


def test_words_are_in_small_letters_with_a_sign_for_digits_and_one_for_rare_words():
    assert normalise("The  <unk> of UNK in 1,984") == "the UNK of UNK in #,###"


def test_lines_are_drawn_at_even_distances():
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
    for split in ("train", "valid", "test", "duc2004"):
        assert len(lines(folder / f"{split}.article")) == len(lines(folder / f"{split}.summary"))
    assert any("UNK" in line.split() for line in lines(folder / "train.article"))
    assert not any("<unk>" in line for line in lines(folder / "train.article"))


def test_every_person_s_summary_is_a_reference_as_the_archive_has_it(text):
    folder, _ = text
    first, *others = [lines(folder / f"duc2004.reference{number}") for number in range(4)]
    assert lines(folder / "duc2004.summary") == [normalise(line) for line in first]
    assert first != lines(folder / "duc2004.summary")  # with its capitals
    assert all(len(other) == miniatures.TEST and other != first for other in others)
    assert not (folder / "train.reference0").exists()


def test_the_unpacked_folder_gives_the_same(text, unpacked, tmp_path):
    title = unpacked / "train" / "train.title.txt.gz"
    (unpacked / "train" / "train.title.txt").write_bytes(gzip.decompress(title.read_bytes()))
    title.unlink()
    again = tmp_path / "again"
    again.mkdir()
    folder, said = text
    assert list(write_splits(unpacked, again, miniatures.VALID)) == said
    assert {path.name: path.read_bytes() for path in again.iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


def test_a_folder_that_is_another_one_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"has no file train/train\.article\.txt\.gz: it is not"):
        list(write_splits(tmp_path, tmp_path, 8))


def test_files_of_different_lengths_are_named(unpacked, tmp_path):
    (unpacked / "Giga" / "input.txt").write_text("only one\n")
    with pytest.raises(ValueError, match=r"Giga/input\.txt and .* have different numbers of lines"):
        list(write_splits(unpacked, tmp_path, 8))


def test_a_packed_file_that_is_cut_short_is_named(unpacked, tmp_path):
    path = unpacked / "train" / "train.article.txt.gz"
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(
        ValueError, match=r"train\.article\.txt\.gz and .* are cut short or damaged"
    ):
        list(write_splits(unpacked, tmp_path, 8))


def test_bytes_that_are_no_utf_8_are_named_with_their_line(unpacked, tmp_path):
    path = unpacked / "Giga" / "input.txt"
    path.write_bytes(b"\xff\n" + path.read_bytes().split(b"\n", 1)[1])
    with pytest.raises(ValueError, match=r"Giga/input\.txt and .*: a line is no UTF-8"):
        list(write_splits(unpacked, tmp_path, 8))
