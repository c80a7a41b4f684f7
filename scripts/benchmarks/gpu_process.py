"""A part of gpu.py as a process: what it sees, when it is ended, and what else ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

# Between asking a part to end and ending it
GRACE_SECONDS = 5.0
# How often it is looked whether a signal came
LOOK_SECONDS = 0.2


class Signals:
    """Which signal asked for the end, if one did.

    It is noted alone: an exception could come where a part has begun and nothing would end it.
    """

    ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.came: signal.Signals | None = None

    @contextlib.contextmanager
    def noted(self) -> Iterator[None]:
        """Note them within, but for those that the caller of this process had ignored."""
        before = {one: signal.getsignal(one) for one in self.ASKING}
        for one, handler in before.items():
            if handler is not signal.SIG_IGN:
                signal.signal(one, self._note)
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _note(self, number: int, _: FrameType | None) -> None:
        self.came = self.came or signal.Signals(number)


SIGNALS = Signals()


def finished(
    command: list[str], environment: dict[str, str], seconds: float, log: Path
) -> int | None:
    """Run a command; its exit status, or None where it took longer, or a signal came.

    All that it started is ended with it.
    """
    end = time.monotonic() + seconds
    with (
        log.open("w", encoding="utf-8") as file,
        subprocess.Popen(
            command,
            env={**os.environ, **surroundings(), **environment},
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        ) as process,
    ):
        try:
            while process.poll() is None:
                left = end - time.monotonic()
                if left <= 0 or SIGNALS.came:
                    return None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(min(left, LOOK_SECONDS))
            return process.returncode
        finally:
            if process.poll() is None:
                _end(process)


def surroundings() -> dict[str, str]:
    """What every part sees: this clone's package, and one GPU; fairseq would take all."""
    places = str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, places)),
        "CUDA_VISIBLE_DEVICES": os.environ.get("CUDA_VISIBLE_DEVICES", "0"),
    }


def _end(process: subprocess.Popen[Any]) -> None:
    """Ask the group of a process to end, and end what does not."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)
    # Others of the group may be there where the first is not
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
