"""Files and sets of files are written completely or not at all, even if a process is killed."""

import os
import signal

import pytest

from fairseq_entmax.files import check_target, refuse_inputs, whole_file, whole_set, write_together


def killed(action, function, number):
    """Run an action in a child process that is killed at the n-th call of a function of os.

    Returns whether it was killed: False if the function is called fewer times.
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
    """Three files in two folders, of which two exist."""
    targets = [tmp_path / "figures" / "a.svg", tmp_path / "figures" / "b.svg"]
    targets.append(tmp_path / "pages" / "page.html")
    for target in targets:
        target.parent.mkdir(exist_ok=True)
    for target in targets[:2]:
        target.write_text("old")
    return targets


@pytest.mark.parametrize("function", ["fsync", "replace"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_files_are_whole_whenever_the_writer_of_a_set_is_killed(targets, function, number):
    def write():
        write_together(dict.fromkeys(targets, b"new"))

    assert killed(write, function, number) == (number <= 3)
    placed = 3 if number == 4 else number - 1 if function == "replace" else 0
    assert texts(targets) == ["new"] * placed + ["old", "old", None][placed:]
    write()
    assert texts(targets) == ["new"] * 3
    assert names(*{target.parent for target in targets}) == ["a.svg", "b.svg", "page.html"]


def test_the_next_writer_removes_only_the_leftovers_of_its_file(tmp_path):
    (tmp_path / "page.html.tmp77").write_text("half")
    others = ["other.html.tmp1", "page.html.tmp", "page.html.tmp1x", "pageXhtml.tmp1"]
    for name in others:
        (tmp_path / name).write_text("mine")
    write_together({tmp_path / "page.html": b"new"})
    assert names(tmp_path) == sorted(["page.html", *others])


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_together({tmp_path / "a": b"new"})
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(28, "full"), r"cannot write .*a\.svg and .*page\.html, nothing was chang"),
        (FileNotFoundError(2, "gone", "source"), "'source'"),
        (ValueError("line 3 is damaged"), "line 3 is damaged"),
    ],
)
def test_an_error_while_writing_a_set_leaves_the_old_files(targets, error, message):
    def fail():
        with whole_set(targets) as files:
            files[0].write(b"half")
            raise error

    with pytest.raises(type(error), match=message):
        fail()
    assert texts(targets) == ["old", "old", None]
    assert names(*{target.parent for target in targets}) == ["a.svg", "b.svg"]


def test_a_file_that_cannot_be_made_leaves_the_others(targets, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_together({targets[0]: b"new", tmp_path / "nowhere" / "a": b"new"})
    assert texts(targets) == ["old", "old", None]
    with whole_file(targets[2]) as file:
        file.write(b"new")
        assert not targets[2].exists()
    assert texts(targets) == ["old", "old", "new"]


def test_an_invalid_output_is_refused_with_a_clear_message(tmp_path):
    there, pipe, link = tmp_path / "there", tmp_path / "pipe", tmp_path / "link"
    there.write_text("old")
    os.mkfifo(pipe)
    link.symlink_to(there)
    for path, overwrite, error, message in [
        ("", True, ValueError, "--output got '': give the name of a file"),
        (tmp_path, True, ValueError, "give the name of a file"),
        (pipe, True, ValueError, "pipe', which is not a regular file: give another name"),
        (tmp_path / "no" / "a", False, FileNotFoundError, "there is no folder .*: make it first"),
        (link, False, FileExistsError, "link', which exists: give another name, or --overwrite"),
    ]:
        with pytest.raises(error, match=message):
            check_target(path, "--output", overwrite)
    assert check_target(link, "--output", overwrite=True) == there
    assert check_target(tmp_path / "new", "--output", overwrite=False) == tmp_path / "new"
    with pytest.raises(ValueError, match="there is the text, and would be replaced"):
        refuse_inputs([there], {"the text": str(link), "the dictionary": None})
