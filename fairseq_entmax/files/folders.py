"""A folder that is gone when its work is done, or when the next one like it is made."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

# What tempfile puts behind a prefix
_RANDOM = r"[a-z0-9_]{8}"


@contextlib.contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Make a folder for this user alone, and remove it when the block ends.

    Those that killed processes left are removed first: the ones of this user that nobody holds
    locked. Where the file system has no locks, they stay.

    Args:
        parent: a folder that exists.
        prefix: how its name begins, and that of no other file there.

    Raises:
        OSError: it cannot be made.
    """
    for path in parent.glob(f"{prefix}*"):
        if re.fullmatch(re.escape(prefix) + _RANDOM, path.name):
            _remove_abandoned(path)
    folder, lock = _locked_folder(parent, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remove_abandoned(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.lstat().st_uid != os.getuid():
            return
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _locked_folder(parent: Path, prefix: str) -> tuple[Path, int]:
    """A new folder, and a descriptor that holds it locked where there are locks."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:  # taken for an abandoned one, before it was locked
            continue
        with contextlib.suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return path, lock
        os.close(lock)
