"""Files appear whole, sets of them together, and a process that is killed leaves nothing for good."""

import json
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from fairseq_entmax.files import (
    clear_leftovers,
    notes,
    temporary,
    whole_file,
    whole_set,
    write_together,
)
from fairseq_entmax.files.folders import temporary_folder

DEAD = 4194304 + 1  # above the largest process id of Linux


def killed(action, function, number):
    """Run an action in a process that is killed at the n-th call of a function of os.

    Whether it was killed: False where the function is called fewer times.
    """
    child = os.fork()
    if not child:
        real, calls = getattr(os, function), []

        def count(*arguments):
            calls.append(1)
            if len(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments)

        setattr(os, function, count)
        action()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)


def names(*folders):
    return sorted(path.name for folder in folders for path in folder.iterdir())


def texts(targets):
    return [target.read_text() if target.exists() else None for target in targets]


@pytest.fixture
def targets(tmp_path):
    """Three files in two folders, of which two are there."""
    folders = [tmp_path / "figures", tmp_path / "pages"]
    for folder in folders:
        folder.mkdir()
    targets = [folders[0] / "a.svg", folders[0] / "b.svg", folders[1] / "page.html"]
    for target in targets[:2]:
        target.write_text("old")
    return targets


def write_new(targets):
    write_together(dict.fromkeys(targets, b"new"))


# Calls in writing three files: a note for each of two folders, then the files
REPLACEMENTS = 5
SYNCED = 5


@pytest.mark.parametrize("number", range(1, REPLACEMENTS + 1))
def test_a_set_whose_writer_is_killed_at_a_rename_is_old_or_completed_by_the_next(targets, number):
    assert killed(lambda: write_new(targets), "replace", number)
    clear_leftovers(targets)
    # From the first note on the whole set is on the disk
    expected = ["old", "old", None] if number == 1 else ["new"] * 3
    assert texts(targets) == expected
    assert names(*{target.parent for target in targets}) == [
        target.name for target, text in zip(targets, expected, strict=True) if text
    ]


def test_there_are_no_more_renames_than_are_tried(targets):
    assert not killed(lambda: write_new(targets), "replace", REPLACEMENTS + 1)
    assert not killed(lambda: write_new(targets), "fsync", SYNCED + 1)


@pytest.mark.parametrize("number", range(1, SYNCED + 1))
def test_a_set_whose_writer_is_killed_before_all_is_written_stays_old(targets, number):
    assert killed(lambda: write_new(targets), "fsync", number)
    assert texts(targets) == ["old", "old", None]
    clear_leftovers(targets)
    assert texts(targets) == ["old", "old", None]
    assert names(*{target.parent for target in targets}) == ["a.svg", "b.svg"]


@pytest.mark.parametrize("number", range(1, REPLACEMENTS + 1))
def test_the_completion_can_be_killed_too(targets, number):
    assert killed(lambda: write_new(targets), "replace", 3)
    killed(lambda: clear_leftovers(targets), "replace", number)
    clear_leftovers(targets)
    assert texts(targets) == ["new"] * 3
    assert names(*{target.parent for target in targets}) == ["a.svg", "b.svg", "page.html"]


def test_who_writes_one_file_of_a_half_replaced_set_completes_the_others(targets, caplog):
    assert killed(lambda: write_new(targets), "replace", 4)
    assert texts(targets) == ["new", "old", None]
    write_together({targets[2]: b"newer"})
    assert texts(targets) == ["new", "new", "newer"]
    assert "completed the files that a stopped command had left half replaced: " in caplog.text


def test_a_half_replaced_set_says_so_in_a_file_beside_it(targets):
    assert killed(lambda: write_new(targets), "replace", 4)
    for folder in {target.parent for target in targets}:
        (note,) = (path for path in folder.iterdir() if path.suffix == ".json")
        assert "a command was stopped while it replaced these files" in note.read_text()


def test_a_set_that_someone_has_written_to_since_is_left_to_them(targets):
    assert killed(lambda: write_new(targets), "replace", 4)
    targets[0].write_text("mine")
    clear_leftovers(targets)
    assert texts(targets) == ["mine", "old", None]
    assert names(*{target.parent for target in targets}) == ["a.svg", "b.svg"]


def test_a_folder_that_was_moved_is_completed_where_it_is(targets, tmp_path):
    write = targets[:2]
    assert killed(lambda: write_new(write), "replace", 3)
    moved = targets[0].parent.rename(tmp_path / "moved")
    clear_leftovers([moved / "a.svg"])
    assert texts([moved / "a.svg", moved / "b.svg"]) == ["new", "new"]


def test_a_leftover_is_removed_whatever_its_number(tmp_path):
    for number in (1, os.getpid(), DEAD):
        (tmp_path / f"page.html.tmp{number}").write_text("half")
    write_together({tmp_path / "page.html": b"new"})
    assert names(tmp_path) == ["page.html"]


def test_what_a_living_process_writes_stays(tmp_path):
    target = tmp_path / "page.html"
    with whole_file(target) as file:
        file.write(b"first")
        write_together({target: b"second"})
        assert len(names(tmp_path)) == 2
        assert target.read_text() == "second"
    assert target.read_text() == "first"
    assert names(tmp_path) == ["page.html"]


def test_a_file_taken_for_a_leftover_before_it_was_locked_is_begun_anew(tmp_path, monkeypatch):
    lock, cleared = temporary.fcntl.flock, []

    def clear_first(file, how):
        if not cleared:
            cleared.append(1)
            clear_leftovers([tmp_path / "page.html"])
            assert names(tmp_path) == []
        lock(file, how)

    monkeypatch.setattr(temporary.fcntl, "flock", clear_first)
    write_together({tmp_path / "page.html": b"new"})
    assert (tmp_path / "page.html").read_text() == "new"
    assert names(tmp_path) == ["page.html"]


@pytest.mark.parametrize(
    "name",
    ["other.html.tmp1", "page.html.tmp", "page.html.tmp1x", "xpage.html.tmp1", "pageXhtml.tmp1"],
)
def test_what_is_not_of_the_file_stays(tmp_path, name):
    (tmp_path / name).write_text("mine")
    write_together({tmp_path / "page.html": b"new"})
    assert (tmp_path / name).read_text() == "mine"


def test_what_is_no_ordinary_file_stays(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "page.html.tmp1").symlink_to("mine")
    (tmp_path / "page.html.tmp2").mkdir()
    os.mkfifo(tmp_path / "page.html.tmp3")
    write_together({tmp_path / "page.html": b"new"})
    assert len(names(tmp_path)) == 5
    assert (tmp_path / "mine").read_text() == "mine"


def test_without_locks_nothing_is_removed(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(temporary.fcntl, "flock", refuse)
    (tmp_path / "page.html.tmp1").write_text("half")
    write_together({tmp_path / "page.html": b"new"})
    assert names(tmp_path) == ["page.html", "page.html.tmp1"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100000,
        "[1, 2]",
        '{"format": "other", "files": []}',
        f'{{"format": "{notes.FORMAT}"}}',
        f'{{"format": "{notes.FORMAT}", "files": [3]}}',
        f'{{"format": "{notes.FORMAT}", "files": [{{"target": 3, "number": 1, "sha256": "x"}}]}}',
        f'{{"format": "{notes.FORMAT}", "files": [{{"target": "a", "number": 1e999, "sha256": ""}}]}}',
    ],
)
def test_a_note_that_is_none_is_passed_over(tmp_path, text):
    (tmp_path / f"{notes.FORMAT}-1.json").write_text(text)
    write_together({tmp_path / "page.html": b"new"})
    assert (tmp_path / "page.html").read_text() == "new"


def test_a_note_made_up_by_someone_else_puts_no_file_of_theirs_elsewhere(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "theirs" / "evil.tmp1").write_text("evil")
    entry = {"target": "../precious", "number": 1, "temporary": "evil.tmp1", "sha256": "0" * 64}
    note = {"format": notes.FORMAT, "files": [entry]}
    (tmp_path / "theirs" / f"{notes.FORMAT}-1.json").write_text(json.dumps(note))
    write_together({tmp_path / "theirs" / "page.html": b"new"})
    assert (tmp_path / "precious").read_text() == "mine"


def test_when_the_second_file_cannot_be_replaced_the_error_says_how_it_goes_on(targets):
    targets[1].unlink()
    targets[1].mkdir()
    with pytest.raises(OSError, match=r"cannot write .*b\.svg: .*; 1 of 3 files are replaced"):
        write_new(targets)
    targets[1].rmdir()
    clear_leftovers(targets)
    assert texts(targets) == ["new"] * 3


def test_when_the_first_cannot_be_replaced_nothing_has_changed(targets):
    targets[0].unlink()
    targets[0].mkdir()
    with pytest.raises(OSError, match=r"cannot write .*a\.svg: "):
        write_new(targets)
    assert texts(targets[1:]) == ["old", None]
    assert names(*{target.parent for target in targets}) == ["a.svg", "b.svg"]


def half_written(target):
    with whole_file(target) as file:
        file.write(b"half")
        raise OSError(28, "No space left on device")


def test_an_error_while_a_file_is_written_leaves_the_old_one(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(OSError, match=r"cannot write .*a, nothing was changed: .*No space left"):
        half_written(tmp_path / "a")
    assert names(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def stream(targets, error=None):
    with whole_set(targets) as files:
        for number, file in enumerate(files):
            file.write(b"new")
            if error is not None and number == 1:
                raise error
            file.write(b"er")


@pytest.mark.parametrize("number", range(1, REPLACEMENTS + 2))
def test_a_streamed_set_whose_writer_is_killed_is_old_or_completed(targets, number):
    assert killed(lambda: stream(targets), "replace", number) == (number <= REPLACEMENTS)
    clear_leftovers(targets)
    assert texts(targets) == (["old", "old", None] if number == 1 else ["newer"] * 3)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "No space left on device"), r"a\.svg and .*page\.html, nothing was changed: "),
        (FileNotFoundError(2, "gone", "source"), "'source'"),
        (ValueError("line 3 is damaged"), "line 3 is damaged"),
    ],
)
def test_an_error_while_a_set_is_streamed_leaves_the_old_one(targets, error, message):
    with pytest.raises(type(error), match=message):
        stream(targets, error)
    assert texts(targets) == ["old", "old", None]
    assert names(*{target.parent for target in targets}) == ["a.svg", "b.svg"]


@pytest.mark.slow
def test_figures_that_a_kill_left_half_replaced_are_completed_by_the_same_command(tmp_path):
    from tests.analysis.report.synthetic import synthetic_analysis

    analysis = synthetic_analysis(models=1, layers=1, heads=2, sentences=1, length=4)
    (tmp_path / "a.json").write_text(json.dumps(analysis))
    command = ["report", "a.json", "--output=r.html", "--figures=f", "--formats=svg"]
    script = """
        import os, signal, sys
        from fairseq_entmax import cli
        real, calls = os.replace, []
        def replace(*paths):
            calls.append(1)
            if len(calls) == 5:  # two notes, two figures
                os.kill(os.getpid(), signal.SIGKILL)
            real(*paths)
        os.replace = replace
        cli.main(sys.argv[1:])
    """
    python = [sys.executable, "-c"]
    stopped = subprocess.run(
        [*python, textwrap.dedent(script), *command], cwd=tmp_path, check=False
    )
    assert stopped.returncode == -signal.SIGKILL
    assert len(list((tmp_path / "f").glob("*.svg"))) == 2
    again = [*python, "import sys; from fairseq_entmax import cli; sys.exit(cli.main())", *command]
    result = subprocess.run(again, cwd=tmp_path, capture_output=True, text=True, check=False)
    # The set is there now, and nothing said that it may be replaced
    assert result.returncode == 1
    assert "completed the files" in result.stderr
    assert "--overwrite" in result.stderr
    assert names(tmp_path) == ["a.json", "f", "r.html"]
    figures = {path.name: path.read_bytes() for path in (tmp_path / "f").iterdir()}
    assert len(figures) > 2
    assert all(name.endswith(".svg") for name in figures)
    subprocess.run([*again, "--overwrite"], cwd=tmp_path, check=True, capture_output=True)
    assert figures == {path.name: path.read_bytes() for path in (tmp_path / "f").iterdir()}


KILLED_WITH_A_FOLDER = """
import os, signal, sys
from pathlib import Path
from fairseq_entmax.files.folders import temporary_folder
with temporary_folder(Path(sys.argv[1]), ".extracted-") as folder:
    (folder / "half").write_text("half")
    if sys.argv[2] == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_temporary_folder_of_a_killed_process_goes_with_the_next_and_others_stay(tmp_path):
    def call(how):
        return subprocess.run(
            [sys.executable, "-c", KILLED_WITH_A_FOLDER, str(tmp_path), how], check=False
        )

    (tmp_path / ".extracted-by-hand").mkdir()
    assert call("kill").returncode == -signal.SIGKILL
    assert len(names(tmp_path)) == 2
    with temporary_folder(tmp_path, ".extracted-") as held:
        assert names(tmp_path) == sorted([".extracted-by-hand", held.name])
        assert call("end").returncode == 0
        assert held.exists()
    assert names(tmp_path) == [".extracted-by-hand"]


def test_what_is_no_ordinary_file_is_not_replaced_and_neither_is_what_belongs_to_it(tmp_path):
    pipe, other = tmp_path / "pipe", tmp_path / "other"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="pipe, nothing was changed: it is no ordinary file"):
        write_together({other: b"new", pipe: b"new"})
    with pytest.raises(OSError, match="no ordinary file"), whole_file(pipe):
        pytest.fail("it was opened")
    assert pipe.is_fifo()
    assert names(tmp_path) == ["pipe"]
