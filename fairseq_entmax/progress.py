"""How far long work is, on standard error; work that is done in three seconds says nothing.

In a terminal it is one line that is written over, and gone in the end. Elsewhere, as in a log
file, it is a line now and then, ever more rarely, until two a minute.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO, TypeVar

SHORT = 3.0  # seconds in which nothing is said
IN_TERMINAL = 0.2  # seconds between two looks of a line that is written over
RAREST = 30.0  # seconds between two lines in a file, at the most

Item = TypeVar("Item")


class Progress:
    """What is done of some work; a context manager that clears its line in the end.

    Args:
        what: the work, such as ``relevance``.
        total: how many steps there are; None where nobody knows.
        is_shown: False says nothing at all.
        unit: what a step is, such as ``sentences``.
        stream: where to; None is standard error.
        clock: seconds, ever more.
    """

    def __init__(
        self,
        what: str,
        total: int | None = None,
        is_shown: bool = True,
        unit: str = "",
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.what, self.total, self.done = what, total, 0
        self._unit = f" {unit}" if unit else ""
        self._is_shown, self._clock = is_shown, clock
        self._stream = sys.stderr if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._start = clock()
        self._next, self._width = self._start + SHORT, 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._width:
            self._write_over("")

    def advance(self, steps: int = 1) -> None:
        """Count steps that are done, and say so if it is time to."""
        self.done += steps
        now = self._clock()
        if not self._is_shown or now < self._next:
            return
        passed = now - self._start
        if self._is_terminal:
            self._write_over(self.text(passed))
            self._next = now + IN_TERMINAL
        else:
            print(self.text(passed), file=self._stream, flush=True)
            self._next = now + min(passed, RAREST)

    def text(self, passed: float) -> str:
        """What is said after some seconds."""
        if not self.total:
            return f"{self.what}: {self.done:,}{self._unit} in {duration(passed)}"
        left = passed / max(self.done, 1) * max(self.total - self.done, 0)
        share = min(self.done / self.total, 1.0)
        return (
            f"{self.what}: {share:.0%}, {self.done:,} of {self.total:,}{self._unit} in {duration(passed)}, "
            f"{duration(left)} left"
        )

    def _write_over(self, text: str) -> None:
        text = text[: max(shutil.get_terminal_size().columns - 1, 1)]
        end = "" if text else "\r"
        self._stream.write(f"\r{text.ljust(self._width)}{end}")
        self._stream.flush()
        self._width = len(text)


def watched(
    items: Iterable[Item],
    what: str,
    total: int | None = None,
    is_shown: bool = True,
    unit: str = "",
) -> Iterator[Item]:
    """Iterate over items, and say how far that is.

    Args:
        items: of any kind.
        what, is_shown, unit: as of :class:`Progress`.
        total: how many items there are; None asks for their length, if they have one.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    with Progress(what, total, is_shown, unit) as progress:
        for item in items:
            yield item
            progress.advance()


@contextmanager
def said_if_long(what: str, stream: TextIO | None = None) -> Iterator[None]:
    """Say what is being done, in one line, if the block takes longer than :data:`SHORT`."""
    stream = sys.stderr if stream is None else stream
    timer = threading.Timer(SHORT, print, (what,), {"file": stream, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def duration(seconds: float) -> str:
    """Seconds as minutes and seconds, 1:05, and hours where there are, 2:01:05."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
