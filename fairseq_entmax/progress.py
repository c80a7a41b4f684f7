"""Progress of long work, on stderr: after three seconds a bar on a terminal, or a line a minute."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

SHORT = 3.0  # seconds before anything is shown
RAREST = 60.0  # seconds between two lines if there is no terminal, as in a log file


def duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return "less than a minute"
    hours, minutes = divmod(minutes, 60)
    return (f"{hours} h " if hours else "") + f"{minutes} min"


def watched(
    items: Iterable[Any] | None,
    what: str,
    total: int | None = None,
    is_shown: bool = True,
    unit: str = "",
) -> Any:
    """Iterate over items and show progress; without items, call ``update`` of what is returned.

    ``what`` names the work, such as ``relevance``; ``unit`` names the items, as ``sentences``."""
    from tqdm import tqdm

    class Lines(tqdm):
        def display(self, msg: str | None = None, pos: int | None = None) -> None:
            if msg is None and self.n:  # an empty message erases a bar
                remaining = self.format_dict["elapsed"] * (self.total - self.n) / self.n
                done = f"{self.desc.removesuffix(': ')}: {self.n:,} of {self.total:,}{self.unit}"
                print(f"{done}, {duration(remaining)} left", file=sys.stderr, flush=True)

    watched = sys.stderr.isatty()
    return (tqdm if watched else Lines)(
        items,
        what,
        total,
        leave=False,
        file=sys.stderr,
        miniters=1,
        mininterval=0.2 if watched else RAREST,
        disable=not is_shown,
        delay=SHORT,
        unit=f" {unit}" if unit else "",
    )


@contextmanager
def message_if_long(what: str) -> Iterator[None]:
    """Print ``what`` as one line if the block takes longer than :data:`SHORT`."""
    timer = threading.Timer(SHORT, print, (what,), {"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
