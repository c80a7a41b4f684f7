"""A file under a temporary name beside its place, locked as long as it has a writer."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


class TemporaryFile:
    """A file under a temporary name, locked while it is open."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self._refuse_device()
        self.number = os.getpid()
        while True:
            self.path = temporary_path(target, self.number)
            try:
                self.file = self.path.open("xb")
            except FileExistsError:  # of another machine, or another thread
                self.number = random.randrange(10**9)
                continue
            except OSError as error:
                raise self.error(error) from error
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(self.file, fcntl.LOCK_EX)
            if is_still(self.path, self.file):
                return
            self.file.close()  # taken for a leftover, between opening and locking

    def _refuse_device(self) -> None:
        """A device that is replaced, such as /dev/null, is gone for every process of the system."""
        try:
            mode = os.lstat(self.target).st_mode
        except OSError:  # as a rule it is not there; what else there is, opening says
            return
        if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode) or stat.S_ISDIR(mode)):
            raise OSError(
                f"cannot write {self.target}, nothing was changed: it is no ordinary file"
            )

    def write(self, content: bytes) -> None:
        try:
            self.file.write(content)
        except OSError as error:
            raise self.error(error) from error

    def finish(self) -> None:
        """What was written is on the disk when this returns."""
        try:
            self.file.flush()
            os.fsync(self.file.fileno())
        except OSError as error:
            raise self.error(error) from error

    def put_in_place(self) -> None:
        try:
            os.replace(self.path, self.target)
        except OSError as error:
            raise OSError(f"cannot write {self.target}: {error}") from error

    def discard(self) -> None:
        """Remove the temporary file if it is still there."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        with contextlib.suppress(OSError):  # a full disk, of what is not wanted any more
            self.file.close()

    def error(self, error: OSError) -> OSError:
        return OSError(f"cannot write {self.target}, nothing was changed: {error}")


def temporary_path(target: Path, number: int) -> Path:
    return target.with_name(f"{target.name}.tmp{number}")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[BinaryIO | None]:
    """A file, locked; None where it is gone, not ours, or of a process that lives."""
    with contextlib.ExitStack() as stack:
        try:
            # For writing: over a network, only that can be locked
            file = stack.enter_context(path.open("r+b"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
            return
        yield file if is_still(path, file) else None


def is_still(path: Path, file: BinaryIO) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(file.fileno()))
    except (OSError, ValueError):
        return False
