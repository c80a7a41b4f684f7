"""What is finished stays finished, and nothing else is taken for it."""

import os

import pytest

from fairseq_entmax.analysis.ablation.journal import Journal
from fairseq_entmax.analysis.ablation.removal import SentenceScores

SETTINGS = {"scores": ["loss", "bleu"], "generation": {"beam": 5}, "batch_size": None}
FIRST = SentenceScores([1.5, 0.1 + 0.2], ["¿Qué?", "two\tlines\n"])
SECOND = SentenceScores(None, ["a", "b"])


@pytest.fixture
def path(tmp_path):
    """A journal with two removals."""
    path = str(tmp_path / "removals.jsonl")
    with Journal(path, SETTINGS) as journal:
        journal.add((), FIRST)
        journal.add(("cross:0.1", "cross:0.2"), SECOND)
    return path


def test_what_was_added_is_read_back_exactly(path):
    with Journal(path, SETTINGS) as journal:
        assert journal.finished == {(): FIRST, ("cross:0.1", "cross:0.2"): SECOND}


def test_a_line_cut_anywhere_is_dropped_and_can_be_written_anew(path):
    with open(path, "rb") as file:
        whole = file.read()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == 3
    for size in (0, 1, ends[0] - 1, ends[0], ends[0] + 1, ends[1] - 1, ends[1], ends[2] - 1):
        with open(path, "wb") as file:
            file.write(whole[:size])
        with Journal(path, SETTINGS) as journal:
            kept = sum(end <= size for end in ends[1:])
            assert len(journal.finished) == kept
            for heads, scores in [((), FIRST), (("cross:0.1", "cross:0.2"), SECOND)][kept:]:
                journal.add(heads, scores)
        with open(path, "rb") as file:
            assert file.read() == whole


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"scores": ["loss"]}, r"scores was \['loss', 'bleu'\] and is \['loss'\];"),
        ({"generation": {"beam": 1}}, "generation.beam was 5 and is 1;"),
        (
            {"generation": {"beam": 5, "lenpen": 2.0}},
            "generation.lenpen was None and is 2.0;",
        ),
        (
            {"batch_size": 4, "generation": {"beam": 4}},
            "batch_size was None and is 4; generation.beam was 5 and is 4;",
        ),
    ],
)
def test_other_settings_are_refused_with_what_differs_and_the_remedy(path, changed, message):
    with open(path, "rb") as file:
        before = file.read()
    with pytest.raises(ValueError, match=message + " choose another --output, .*--overwrite"):
        Journal(path, {**SETTINGS, **changed})
    with open(path, "rb") as file:
        assert file.read() == before


def test_to_overwrite_forgets_everything(path):
    with Journal(path, {"scores": ["loss"]}, overwrite=True) as journal:
        assert journal.finished == {}
    with Journal(path, {"scores": ["loss"]}) as journal:
        assert journal.finished == {}


def test_two_processes_cannot_write_to_one_file(path):
    with Journal(path, SETTINGS):
        size = os.path.getsize(path)
        for overwrite in (False, True):
            with pytest.raises(BlockingIOError, match=r"another process is writing to .*--output"):
                Journal(path, SETTINGS, overwrite)
        assert os.path.getsize(path) == size
    with Journal(path, SETTINGS) as journal:
        assert len(journal.finished) == 2


def test_a_damaged_line_in_the_middle_is_named(path):
    with open(path, "r+b") as file:
        file.seek(file.read().index(b"\n") + 3)
        file.write(b"\0\0\0")
    with pytest.raises(ValueError, match=r"line 2 of .*removals.jsonl is damaged .*--overwrite"):
        Journal(path, SETTINGS)


@pytest.mark.parametrize(
    "content",
    [
        "my notes",
        "my notes\n",
        "[1, 2]\n",
        "{}\n",
        '{"format": "other", "version": 1}\n',
        '{"format": "fairseq-entmax-removals", "version": 2}\n',
    ],
)
def test_a_file_of_something_else_is_left_alone(tmp_path, content):
    path = tmp_path / "removals.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match="was not written by this version of the command"):
        Journal(str(path), SETTINGS)
    assert path.read_text() == content
