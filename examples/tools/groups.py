"""Groups of processes: what they have taken, and their end.

groups.py guard      # ends the groups that standard input names, once it ends

A job of `jobs.py` is the first of a group of processes, and the group has its number.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType

PROCESSES = Path("/proc")
PATIENCE, PAUSE = 5.0, 0.05  # seconds
# Of /proc/PID/stat, counted behind the command's name: group, and ticks in user and system mode of
# the process and of the children that it has waited for
GROUP, TICKS = 2, slice(11, 15)


def cpu_seconds_of(groups: Iterable[int]) -> dict[int, float]:
    """The seconds of processors that each group has taken so far.

    Where the system lists no processes, as on macOS, there are none.
    """
    taken = dict.fromkeys(groups, 0.0)
    tick = os.sysconf("SC_CLK_TCK")
    for path in PROCESSES.glob("[0-9]*/stat"):
        try:
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        group = int(fields[GROUP])
        if group in taken:
            taken[group] += sum(map(int, fields[TICKS])) / tick
    return taken


def is_there(group: int) -> bool:
    """Tell whether a group has a process that has not ended."""
    if not PROCESSES.is_dir():
        return _signal(group, 0)
    for path in PROCESSES.glob("[0-9]*/stat"):
        try:
            fields = path.read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[GROUP]) == group and fields[0] not in "ZX":
            return True
    return False


def _signal(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_groups(groups: Sequence[int], patience: float = PATIENCE) -> None:
    """End all processes of groups: by SIGTERM, and after a while by SIGKILL."""
    at_work = [group for group in groups if _signal(group, signal.SIGTERM)]
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        at_work = [group for group in at_work if is_there(group)]
        if not at_work:
            return
        time.sleep(PAUSE)
    for group in at_work:
        _signal(group, signal.SIGKILL)


class Guard:
    """A process beside this one that ends the groups it watches, once this one has ended."""

    def __enter__(self) -> Guard:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "guard"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # what ends this one's group leaves it
            close_fds=False,  # it keeps the locks until the groups have ended
            text=True,
        )
        return self

    def watch(self, group: int) -> None:
        self._write(f"+{group}\n")

    def forget(self, group: int) -> None:
        self._write(f"-{group}\n")

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def guard() -> None:
    """Follow standard input to its end; then end the groups that are still watched."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    watched: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line.startswith("+"):
            watched.add(group)
        else:
            watched.discard(group)
    end_groups(sorted(watched))


if __name__ == "__main__":
    guard()
