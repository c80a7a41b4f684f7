"""Processes that load batches (``--num-workers``), and what is said when one of them is lost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

# Of torch, through which passes what is raised where a batch is waited for
_LOADER = ("torch", "utils", "data", "dataloader.py")
_LOST = "DataLoader worker (pid"


class LoaderLostError(RuntimeError):
    """A process that loads batches has ended before its time; says what to do."""


@contextmanager
def naming_lost_loaders() -> Iterator[None]:
    """Say that a process which loads batches is gone, where torch says what that led to.

    Its connection breaks then, and a batch that it had announced can no longer be read: an
    ``EOFError`` or a broken connection, behind which nobody looks for a process that was ended
    for want of memory. What such a process raises itself comes through as before.

    Raises:
        LoaderLostError: in the place of these.
    """
    try:
        yield
    except (EOFError, ConnectionError, RuntimeError) as error:
        is_told = isinstance(error, RuntimeError) and str(error).startswith(_LOST)
        is_broken = not isinstance(error, RuntimeError) and _waits_for_batch(error.__traceback__)
        if not is_told and not is_broken:
            raise
        raise LoaderLostError(
            "a process that loads batches (--num-workers) ended before it had given them all; what "
            "it said itself stands above, and without a word it was ended from outside, mostly for "
            "want of memory: load with --num-workers 0, in this process, or free memory"
        ) from error


class Batches:
    """Batches of which a lost process that loads them is said in one sentence.

    Args:
        batches: an iterator of fairseq's, of which length and attributes are kept.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self._batches: Any = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def __iter__(self) -> Iterator[Any]:
        with naming_lost_loaders():
            batches = iter(self._batches)
        while True:
            with naming_lost_loaders():
                try:
                    batch = next(batches)
                except StopIteration:
                    return
            yield batch


def _waits_for_batch(traceback: TracebackType | None) -> bool:
    while traceback is not None:
        if Path(traceback.tb_frame.f_code.co_filename).parts[-len(_LOADER) :] == _LOADER:
            return True
        traceback = traceback.tb_next
    return False
