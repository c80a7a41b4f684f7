"""Runs a command, and keeps what it took.

accounts.py FOLDER PRODUCT -- COMMAND...

Writes FOLDER/N.json with seconds and seconds of processors, as jobs.py does of a call: now and then
while it runs, so that what a killed one took is kept as well, and nothing where it found its product
done. Ends as the command does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from jobs import SAMPLE, write_whole, written_at


def account(folder: Path, product: Path, command: list[str], sample: float = SAMPLE) -> int:
    """Run a command; return its exit status.

    Args:
        folder: for the file with what it took.
        product: a file that it leaves as it is where it has nothing to do.
        sample: seconds between two notes of what it has taken so far.
    """
    before, began = written_at(product), time.monotonic()
    path = folder / f"{time.time_ns()}.json"
    process = subprocess.Popen(command, close_fds=False)  # the caller's locks are its own as well
    while True:
        try:
            status = process.wait(sample)
        except KeyboardInterrupt:
            continue  # the command has been told as well
        except subprocess.TimeoutExpired:
            # What its processors took is known once it has ended
            _write(path, time.monotonic() - began, 0.0)
            continue
        break
    used = os.times()
    if status == 0 and written_at(product) == before:
        path.unlink(missing_ok=True)
    else:
        _write(path, time.monotonic() - began, used.children_user + used.children_system)
    return status


def _write(path: Path, seconds: float, cpu_seconds: float) -> None:
    content = {"seconds": round(seconds, 2), "cpu_seconds": round(cpu_seconds, 2)}
    write_whole(path, f"{json.dumps(content)}\n")


def main() -> None:
    folder, product, between, *command = sys.argv[1:]
    if between != "--" or not command:
        sys.exit("accounts.py FOLDER PRODUCT -- COMMAND...")
    status = account(Path(folder), Path(product), command)
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
