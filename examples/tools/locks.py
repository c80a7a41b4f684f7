"""One run at a time: take the lock of a folder for the shell that calls this.

locks.py 9 experiments/iwslt17_de_en

The lock belongs to the open file, here number 9 of the shell, and not to this process: it holds
until the shell and all that it started have ended.
"""

from __future__ import annotations

import fcntl
import sys
import time

from messages import one_sentence

# The worker processes of a killed training end some seconds after it
ATTEMPTS, PAUSE = 100, 0.1  # seconds


def take(descriptor: int, folder: str, attempts: int = ATTEMPTS) -> None:
    for attempt in range(attempts):
        if attempt:
            time.sleep(PAUSE)
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        except OSError as error:
            raise ValueError(
                f"cannot lock {folder}/.lock: choose an --output on a file system that has locks"
            ) from error
    raise ValueError(
        f"another run is at work in {folder}: wait until it ends, end it, or choose another --output"
    )


if __name__ == "__main__":
    with one_sentence():
        take(int(sys.argv[1]), sys.argv[2])
