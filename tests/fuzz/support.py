"""How an example is tried, and what has to hold of it."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, settings

from fairseq_entmax import cli

EXAMPLES = os.environ.get("FAIRSEQ_ENTMAX_FUZZ_EXAMPLES")
# Made by what an input would run, if it ran
MARK = "mark-of-what-ran"
CODE = (
    f"$(touch {MARK})",
    f"`touch {MARK}`",
    f"; touch {MARK};",
    f"| touch {MARK}",
    f"__import__('pathlib').Path('{MARK}').touch()",
    f"!!python/object/apply:os.mknod ['{MARK}']",
    f"cos\nmknod\n(S'{MARK}'\ntR.",
    "{0.__class__.__mro__}",
    "%(message)s %s %n",
)
_EXCEPTION = re.compile(r"Traceback|\b[A-Z]\w*(?:Error|Exception|Interrupt|Stop)\b")
_SENTENCE = re.compile(r"[\w. -]+: (error: )?\S")
MOST_SAID = 3000


def examples(slice_of: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hypothesis's settings: the same examples each time, so many unless the environment says."""
    number = int(EXAMPLES) if EXAMPLES else slice_of
    return settings(
        max_examples=number,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


@dataclass(frozen=True)
class Outcome:
    """What came of a command: its exit status and what it said on standard error."""

    status: int
    said: str
    printed: str = ""


def attempt(command: Callable[[], int | None]) -> Outcome:
    """Run a command in this process; an exception that leaves it is an error of the test."""
    said, printed = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(printed),
        mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO())),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            status = command() or 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(bool(end.code))
    return Outcome(status, said.getvalue(), printed.getvalue())


def entmax(words: Sequence[str]) -> Outcome:
    """``fairseq-entmax`` with these words."""
    return attempt(lambda: cli.main(list(words)))


def check_sentence(outcome: Outcome, secrets: Sequence[str] = ()) -> None:
    """An error is the last line, and no line is of a traceback.

    Args:
        secrets: what the input holds, whose words may be said again.
    """
    said = structure = outcome.said
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        for form in (secret, repr(secret)[1:-1]):
            said = said.replace(form, "…")
            structure = structure.replace(form, "…") if "\n" in form else structure
    assert not _EXCEPTION.search(said), outcome.said
    if outcome.status == 0:
        return
    assert outcome.status in (1, 2), outcome
    lines = [line for line in structure.split("\n") if line.strip()]
    assert lines, "it failed without a word"
    assert _SENTENCE.match(lines[-1]), outcome.said
    assert len(lines[-1]) < MOST_SAID + sum(map(len, secrets)), lines[-1]
    is_usage = lines[0].startswith("usage: ")
    ends_with_name = any(lines[-1].endswith(secret) for secret in secrets if secret)
    assert is_usage or ends_with_name or not lines[-1].endswith(":"), (
        f"it ends before it says why: {lines[-1]}"
    )


def within(path: Path, folders: Iterable[str]) -> bool:
    """Whether a path is one of these, or in one of these."""
    return any(str(parent) in folders for parent in (path, *path.parents))


class Place:
    """A folder with inputs, deep among others, which is the working folder of what is tried.

    Args:
        inputs: a folder that is copied.
        parent: where.
    """

    def __init__(self, inputs: Path, parent: Path) -> None:
        self.top = parent / "above"
        self.folder = self.top / "a" / "b" / "c" / "here"
        self._inputs = inputs
        self.restore()

    def restore(self) -> None:
        shutil.rmtree(self.top, ignore_errors=True)
        shutil.copytree(self._inputs, self.folder)
        self.before = self.files()

    def files(self) -> dict[str, str]:
        """Each path below to a digest of the file, '' for a folder."""
        found = {}
        for path in sorted(self.top.rglob("*")):
            is_file = path.is_file() and not path.is_symlink()
            digest = hashlib.md5(path.read_bytes()).hexdigest() if is_file else ""
            found[os.fsdecode(os.fsencode(path.relative_to(self.top)))] = digest
        return found

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        before = os.getcwd()
        os.chdir(self.folder)
        try:
            yield
        finally:
            os.chdir(before)

    def check(
        self, outcome: Outcome, may_replace: Sequence[str] = (), may_leave: Sequence[str] = ()
    ) -> None:
        """Hold what there is now against what there was, and make it as it was.

        Args:
            may_replace: what was named as an output, with ``--overwrite``.
            may_leave: names of files and folders that a command that failed may leave, such as a
                journal.
        """
        after = self.files()
        if after == self.before:
            return
        try:
            assert not any(path.endswith(MARK) for path in after), "the input ran"
            gone = self.before.keys() - after.keys()
            assert not gone, f"these are gone: {gone}"
            changed = {path for path in self.before if self.before[path] != after[path]}
            outputs = {os.path.normpath(self.folder / output) for output in may_replace}
            other = {path for path in changed if not within(self.top / path, outputs)}
            assert not other, f"these were there, and are others: {other}"
            new = after.keys() - self.before.keys()
            half = [path for path in new if re.search(r"\.tmp\d*$|unfinished|\.old$", path)]
            assert not half, f"these are half written: {half}"
            if outcome.status:
                assert not changed, f"these were there, and the command failed: {changed}"
                left = {path for path in new if not set(Path(path).parts) & set(may_leave)}
                assert not {path for path in left if after[path]}, f"these are left: {left}"
        finally:
            self.restore()
