"""Which folder may keep the compiled library: one that nobody else can have written to.

A library runs with all that its user may do. So its folder, and the way to it, may be written to by
this user and root alone; a folder that is not so is left alone, and a private one takes its place.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fairseq_entmax.kernels.native.compiler import CannotBuild

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

VARIABLE = "FAIRSEQ_ENTMAX_CACHE"
PRIVATE = "fairseq-entmax-kernel-"
RANDOM = "[a-z0-9_]{8}"  # what tempfile gives to a name: nobody else's folder is to be removed
MOST_LINKS = 40  # as Linux has it
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class UntrustedError(RuntimeError):
    """A file or a folder is not to be relied on; says which, and why."""


def named_folder() -> Path:
    """The folder that the environment names, absolute; it need not be there.

    Raises:
        CannotBuild: there is no home folder, and no variable names another.
        RuntimeError: ``FAIRSEQ_ENTMAX_CACHE`` names the home of a user that is not there.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named).expanduser().absolute()
    cache_home = os.environ.get("XDG_CACHE_HOME", "")
    # A relative one is to be ignored, says the XDG Base Directory Specification
    if os.path.isabs(cache_home):
        return Path(cache_home) / "fairseq-entmax"
    try:
        return Path.home().absolute() / ".cache" / "fairseq-entmax"
    except RuntimeError as error:
        raise CannotBuild(
            f"there is no home folder to keep the library in: name a folder in {VARIABLE}"
        ) from error


def prepare(folder: Path) -> Path:
    """The folder, made for this user alone unless it is there, without links in its path.

    Raises:
        UntrustedError: others than this user and root can write to it, or replace it.
        OSError: it cannot be made or looked into.
    """
    resolved = trusted(folder)
    missing = [path for path in (resolved, *resolved.parents) if not path.exists()]
    for path in reversed(missing):
        with suppress(FileExistsError):  # another process was first
            path.mkdir(mode=0o700)
    return trusted(resolved) if missing else resolved


def trusted(folder: Path) -> Path:
    """The folder without links in its path, looked at as far as it is there.

    Whoever can rename a folder or a link on the way can put another one there. In a folder with the
    sticky bit, such as ``/tmp``, others can do so to what is theirs only.

    Raises:
        UntrustedError: others than this user and root can write to it, or replace it.
        OSError: it cannot be looked into.
    """
    if not hasattr(os, "getuid"):  # Windows, whose home folders are private
        return folder
    here, rest = Path(folder.anchor), list(reversed(folder.parts[1:]))
    links = 0
    while rest:
        name = rest.pop()
        step = here.parent if name == ".." else here / name
        try:
            status = step.lstat()
        except FileNotFoundError:
            return step.joinpath(*reversed(rest))
        if status.st_uid not in (os.getuid(), 0):
            raise UntrustedError(
                f"{step} belongs to another user (number {status.st_uid}): name a folder of your "
                f"own in {VARIABLE}"
            )
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
            target = Path(os.readlink(step))
            here = Path(target.anchor) if target.anchor else here
            rest += reversed(target.parts[1:] if target.anchor else target.parts)
            continue
        here = step
        is_guarded = rest and status.st_mode & stat.S_ISVTX
        if status.st_mode & WRITABLE_BY_OTHERS and not is_guarded:
            raise UntrustedError(
                f"others can write to {step}: chmod go-w {step}, or name a folder that only you "
                f"can write to in {VARIABLE}"
            )
    return here


@contextmanager
def private() -> Iterator[Path]:
    """A new folder for this process alone, which is removed.

    Raises:
        CannotBuild: the system's folder for temporary files is not safe either.
        OSError: it cannot be made.
    """
    _clear_private()
    path, lock = _new_private()
    try:
        try:
            resolved = trusted(path)
        except UntrustedError as error:
            raise CannotBuild(str(error)) from error
        yield resolved
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _new_private() -> tuple[Path, int | None]:
    """A new folder, and a descriptor that keeps it locked as long as this process lives."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=f"{PRIVATE}{os.getpid()}-")).absolute()
        try:
            lock = _lock_folder(path)
        except OSError:  # there are no locks, by which another process would remove it
            return path, None
        if lock is not None and path.exists():
            return path, lock
        # Another process took it for one that nobody holds, before it was locked
        if lock is not None:
            os.close(lock)


def _lock_folder(path: Path) -> int | None:
    """A descriptor of a locked folder; None where another process holds it, or it is gone.

    Raises:
        OSError: the system has no locks.
    """
    if fcntl is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return descriptor


def _clear_private() -> None:
    """Remove the private folders of processes that were killed: those that nobody holds locked."""
    for path in Path(tempfile.gettempdir()).glob(f"{PRIVATE}*"):
        is_ours = re.fullmatch(rf"{PRIVATE}\d+-{RANDOM}", path.name)
        with suppress(OSError):
            if is_ours and path.lstat().st_uid == os.getuid():
                lock = _lock_folder(path)
                if lock is not None:
                    shutil.rmtree(path, ignore_errors=True)
                    os.close(lock)
