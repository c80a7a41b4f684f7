"""The journal keeps finished removals, and takes nothing else for one."""

import pytest

from fairseq_entmax.analysis.ablation.journal import Journal
from fairseq_entmax.analysis.ablation.removal import SentenceScores

SETTINGS = {"scores": ["loss", "bleu"], "generation": {"beam": 5}, "batch_size": None}
REMOVALS = {
    (): SentenceScores([1.5, 0.1 + 0.2], ["¿Qué?", "two\tlines\n"]),
    ("cross:0.1", "cross:0.2"): SentenceScores(None, ["a", "b"]),
}


@pytest.fixture
def path(tmp_path):
    """A journal with two removals."""
    with Journal(str(tmp_path / "removals.jsonl"), SETTINGS) as journal:
        for heads, scores in REMOVALS.items():
            journal.add(heads, scores)
    return tmp_path / "removals.jsonl"


def test_a_cut_line_is_dropped_and_all_others_are_read_back_exactly(path):
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    assert len(ends) == 3
    around = {end + step for end in ends for step in (-1, 0, 1)} & set(range(len(whole) + 1))
    for size in (0, 1, *around):
        path.write_bytes(whole[:size])
        with Journal(str(path), SETTINGS) as journal:
            finished = sum(end <= size for end in ends[1:])
            assert journal.finished == dict(list(REMOVALS.items())[:finished])
            for heads, scores in list(REMOVALS.items())[finished:]:
                journal.add(heads, scores)
        assert path.read_bytes() == whole


def test_other_settings_are_refused_with_what_differs_and_the_remedy(path):
    before = path.read_bytes()
    changed = {"batch_size": 4, "generation": {"beam": 4, "lenpen": 2.0}}
    differences = (
        "batch_size was None and is now 4; generation was {'beam': 5} and is now {'beam': 4, "
        "'lenpen': 2.0}; choose another --output, .*--overwrite"
    )
    with pytest.raises(ValueError, match=differences):
        Journal(str(path), {**SETTINGS, **changed})
    assert path.read_bytes() == before
    with Journal(str(path), {"scores": ["loss"]}, overwrite=True) as journal:
        assert journal.finished == {}


def test_two_processes_cannot_write_to_one_file(path):
    before = path.read_bytes()
    with Journal(str(path), SETTINGS):
        for overwrite in (False, True):
            with pytest.raises(BlockingIOError, match=r"another process is writing to .*--output"):
                Journal(str(path), SETTINGS, overwrite)
    assert path.read_bytes() == before


def test_a_damaged_line_in_the_middle_is_named(path):
    with open(path, "r+b") as file:
        file.seek(file.read().index(b"\n") + 3)
        file.write(b"\0\0\0")
    with pytest.raises(ValueError, match=r"line 2 of .*removals.jsonl is damaged .*--overwrite"):
        Journal(str(path), SETTINGS)


@pytest.mark.parametrize(
    "content",
    [
        *("my notes\n", '{"format": "other", "version": 1}\n'),
        '{"format": "fairseq-entmax-removals", "version": 2}\n',
    ],
)
def test_a_file_of_another_format_is_left_alone(tmp_path, content):
    path = tmp_path / "removals.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match="was not written by this version of the command"):
        Journal(str(path), SETTINGS)
    assert path.read_text() == content
