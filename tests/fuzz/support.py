"""How an example runs, and the properties that have to hold."""

import contextlib
import hashlib
import io
import os
import re
import shutil
import stat
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, settings

from fairseq_entmax import cli

EXAMPLES = os.environ.get("FAIRSEQ_ENTMAX_FUZZ_EXAMPLES")
# The file that an input would create if it ran
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
    """Settings of hypothesis: the same examples in every run, and this many by default."""
    return settings(
        max_examples=int(EXAMPLES or slice_of),
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )


@dataclass(frozen=True)
class Outcome:
    """The result of a command: its exit status and what it wrote to standard error."""

    status: int
    output: str


def attempt(command: Callable[[], int | None]) -> Outcome:
    """Run a command in this process; an exception that leaves it fails the test."""
    output = io.StringIO()
    with (
        contextlib.redirect_stderr(output),
        contextlib.redirect_stdout(io.StringIO()),
        mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO())),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            status = command() or 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(bool(end.code))
    return Outcome(status, output.getvalue())


def check_sentence(outcome: Outcome, secrets: Sequence[str] = ()) -> None:
    """Check that an error is the last line, without a traceback; it may repeat the secrets."""
    output = structure = outcome.output
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        for form in (secret, repr(secret)[1:-1]):
            output = output.replace(form, "…")
            structure = structure.replace(form, "…") if "\n" in form else structure
    assert not _EXCEPTION.search(output), outcome.output
    if outcome.status:
        assert outcome.status in (1, 2), outcome
        lines = [line for line in structure.split("\n") if line.strip()]
        assert lines, "it failed without a word"
        assert _SENTENCE.match(lines[-1]), outcome.output
        assert len(lines[-1]) < MOST_SAID + sum(map(len, secrets)), lines[-1]
        is_whole = lines[0].startswith("usage: ") or not lines[-1].endswith(":")
        assert is_whole or lines[-1].endswith(tuple(filter(None, secrets))), lines[-1]


class Place:
    """A copy of the inputs in a deep folder, which is the working folder of an example."""

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
        """Each path below the top folder, with a digest of its kind and content."""
        found = {}
        for path in sorted(self.top.rglob("*")):
            content = path.read_bytes() if path.is_file() else b""
            kind = stat.S_IFMT(path.lstat().st_mode)
            found[os.fsdecode(path)] = f"{kind} {hashlib.md5(content).hexdigest()}"
        return found

    def run(self, words: Sequence[str]) -> Outcome:
        """Run ``fairseq-entmax`` with these arguments in this folder."""
        with contextlib.chdir(self.folder):
            return attempt(lambda: cli.main(list(words)))

    def check(self, outcome: Outcome, may_replace: Sequence[str] = ()) -> None:
        """Compare the files with those before the command, and restore them."""
        after = self.files()
        if after == self.before:
            return
        try:
            assert not any(path.endswith(MARK) for path in after), "the input ran"
            changed = {path for path in self.before if self.before[path] != after.get(path)}
            outputs = {Path(os.path.normpath(self.folder / output)) for output in may_replace}
            other = {path for path in changed if not {Path(path), *Path(path).parents} & outputs}
            assert not other, f"these were there, and are others or gone: {other}"
            new = {path for path in after.keys() - self.before.keys() if not Path(path).is_dir()}
            half = [path for path in new if re.search(r"\.tmp\d*$|unfinished|\.old$", path)]
            assert not half, f"these are half written: {half}"
            if outcome.status:
                assert not changed, f"these were there, and the command failed: {changed}"
                assert not new, f"these are left: {new}"
        finally:
            self.restore()
