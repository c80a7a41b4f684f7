"""One run at a time: take the lock of a folder for the shell that calls this.

locks.py 9 experiments/iwslt17_de_en

The lock belongs to the open file, here number 9 of the shell, and not to this process: it holds
until the shell and all that it started have ended.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import os
import time
from pathlib import Path

from messages import one_sentence

LOCK_FILE = ".lock"
# The worker processes of a killed training end some seconds after it
ATTEMPTS, PAUSE = 100, 0.1  # seconds


def take(descriptor: int, attempts: int = ATTEMPTS) -> bool:
    """Lock an open file; tell whether it could be had.

    Args:
        descriptor: number of the open file.
        attempts: how often to try, `PAUSE` seconds apart.

    Raises:
        OSError: the file system has no locks.
    """
    for attempt in range(attempts):
        if attempt:
            time.sleep(PAUSE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
    return False


def holders(descriptor: int, processes: Path = Path("/proc")) -> list[int]:
    """The processes, other than this one and its shell, that have the same file open.

    Args:
        descriptor: number of the open file, the same in all of them.
        processes: where the system lists processes; none are found where it does not.
    """
    file, own, found = os.fstat(descriptor), {os.getpid(), os.getppid()}, []
    for path in processes.glob(f"[0-9]*/fd/{descriptor}"):
        process = int(path.parts[-3])
        try:
            if process not in own and os.path.samestat(path.stat(), file):
                found.append(process)
        except OSError:  # it ended, or is another user's
            continue
    return sorted(found)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("descriptor", type=int, help="number of the open lock file")
    parser.add_argument("folder", type=Path, help="what it locks, for the message")
    options = parser.parse_args(arguments)
    with one_sentence():
        try:
            taken = take(options.descriptor)
        except OSError as error:
            raise ValueError(
                f"cannot lock {options.folder / LOCK_FILE}: choose an --output on a file system "
                "that has locks"
            ) from error
        if not taken:
            processes = " ".join(map(str, holders(options.descriptor)))
            raise ValueError(
                f"another run is at work in {options.folder} (process {processes}): wait until "
                "it ends, end it, or choose another --output"
            )


if __name__ == "__main__":
    main()
