"""What of the compiled libraries in a folder may be loaded, and how one gets there.

A library is loaded only if it is a plain file of this user whose content is that of the SHA-256 in
its name, in a folder that is safe (see :mod:`fairseq_entmax.kernels.native.folders`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fairseq_entmax.kernels.native.compiler import SECONDS_TO_COMPILE
from fairseq_entmax.kernels.native.folders import (
    RANDOM,
    WRITABLE_BY_OTHERS,
    UntrustedError,
    fcntl,
)

LOCK = ".entmax-kernel.lock"
BUILD = ".entmax-kernel-build-"


def candidates(folder: Path, key: str) -> list[Path]:
    """Files that are named as a library for this key; see :func:`opened` before loading one."""
    with suppress(FileNotFoundError):
        return sorted(path for path in folder.iterdir() if _key(path) == key)
    return []


def _key(path: Path) -> str | None:
    parts = re.fullmatch(r"entmax-([0-9a-f]+)-[0-9a-f]{64}\.so", path.name)
    return parts and parts[1]


def opened(path: Path) -> int:
    """A descriptor of a library whose content is what its name says, and this user's alone.

    Raises:
        UntrustedError: it is not.
        OSError: it cannot be opened.
    """
    names = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY")
    flags = sum(getattr(os, name, 0) for name in names)
    try:
        descriptor = os.open(path, os.O_RDONLY | flags)
    except OSError as error:
        if path.is_symlink():
            raise UntrustedError(f"{path} is a link") from error
        raise
    try:
        _check(descriptor, path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check(descriptor: int, path: Path) -> None:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise UntrustedError(f"{path} is not a plain file")
    if hasattr(os, "getuid"):
        if status.st_uid != os.getuid():
            raise UntrustedError(f"{path} belongs to another user (number {status.st_uid})")
        if status.st_mode & WRITABLE_BY_OTHERS:
            raise UntrustedError(f"others can write to {path}")
    with open(descriptor, "rb", closefd=False) as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    if digest != path.stem.rpartition("-")[2]:
        raise UntrustedError(f"{path} is damaged: its content has another SHA-256 than its name")


def loadable(descriptor: int, path: Path) -> str:
    """By what name a loader finds the very file that was opened.

    The descriptor has to stay open as long as the process: a loader takes a second file of the same
    name for the first.
    """
    name = f"/proc/self/fd/{descriptor}"
    return name if os.path.exists(name) else str(path)


def store(library: Path, folder: Path, key: str) -> Path:
    """Move a library into the folder under the name of its key and content, in place of others."""
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    path = folder / f"entmax-{key}-{digest}.so"
    library.chmod(0o700)
    os.replace(library, path)
    for other in candidates(folder, key):
        if other != path:
            with suppress(OSError):
                other.unlink()
    return path


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Let one process after the other in; false where the system gives no lock.

    The system opens the lock of a process that is killed.
    """
    path = folder / LOCK
    descriptor = _lock(path)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            # While it is locked: who waits for it sees that it is gone, and makes another
            with suppress(OSError):
                path.unlink()
            # A process that was forked meanwhile has the descriptor too, so closing is not enough
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)


def _lock(path: Path) -> int | None:
    """A descriptor of the locked file; None where it cannot be had, or not in time."""
    if fcntl is None:
        return None
    last = time.monotonic() + SECONDS_TO_COMPILE
    while time.monotonic() < last:
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = os.open(path, flags, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(descriptor), path.lstat()):
                return descriptor
        except BlockingIOError:
            time.sleep(0.05)
        except FileNotFoundError:  # who had it has removed it
            pass
        except OSError:  # some network file systems have no locks
            os.close(descriptor)
            with suppress(OSError):
                path.unlink()
            return None
        os.close(descriptor)
    return None


@contextmanager
def workplace(folder: Path, is_locked: bool) -> Iterator[Path]:
    """A new folder in the cache to compile in, which is removed.

    Args:
        folder: the cache.
        is_locked: whether nobody else compiles there, so that other such folders are of processes
            that were killed; they are removed too.

    Raises:
        OSError: it cannot be made.
    """
    path = Path(tempfile.mkdtemp(prefix=BUILD, dir=folder))
    try:
        yield path
    finally:
        for work in folder.iterdir() if is_locked else (path,):
            if re.fullmatch(BUILD + RANDOM, work.name):
                shutil.rmtree(work, ignore_errors=True)
