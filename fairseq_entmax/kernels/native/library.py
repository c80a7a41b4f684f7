"""The library in C: compiled on first use, for the machine that it runs on, and cached.

No build is needed to install the package. The library is compiled by the C compiler of the
machine (``CC``, or ``cc``, ``gcc`` or ``clang``) into ``fairseq-entmax`` in the user's cache folder
(``XDG_CACHE_HOME``, else ``~/.cache``; another one by ``FAIRSEQ_ENTMAX_CACHE``), under a name that
changes with the source, the compiler, its flags and the processor. A folder that others can write
to is not used: the library is then compiled for the process alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import logging
import os
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

VARIABLE = "FAIRSEQ_ENTMAX_CACHE"
FOLDER = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    *("-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math"),
    "-falign-loops=64",  # else the speed of a short loop depends on the code before it
    *("-fwrapv", "-shared", "-fPIC"),  # exponents of what is masked away may overflow
)
# What is tried in turn: not every compiler has OpenMP, or can compile for its own processor
MORE_FLAGS = (("-march=native", "-fopenmp"), ("-fopenmp",), ("-march=native",), ())
# Fewer numbers than this for a thread do not pay for waking it
NUMBERS_A_THREAD = 32768


class CannotBuild(RuntimeError):
    """The library cannot be compiled here; says why and what to do."""


@functools.cache
def lanes() -> int:
    """How many rows are computed side by side."""
    return int(library().entmax_lanes())


def library() -> ctypes.CDLL:
    """The library, compiled unless it is there; raises :class:`CannotBuild`."""
    loaded = _try_to_load()
    if isinstance(loaded, CannotBuild):
        raise loaded
    return loaded


@functools.cache
def _try_to_load() -> ctypes.CDLL | CannotBuild:
    """The library, or why there is none: it is not tried twice in a process."""
    try:
        command = _compiler()
        name = f"entmax-{_key(command)}.so"
        folder = cache_folder()
        if not _is_private(folder):
            logger.warning(
                "the alpha-entmax kernel is compiled for this process alone, as others can write to "
                "%s: name a folder of your own in %s",
                *(folder, VARIABLE),
            )
            with tempfile.TemporaryDirectory(prefix="fairseq-entmax-") as temporary:
                return _compiled(command, Path(temporary), name)
        with _locked(folder):
            with contextlib.suppress(OSError, AttributeError):  # not there, damaged, or cut
                return with_types(folder / name)
            return _compiled(command, folder, name)
    except CannotBuild as error:
        return error
    except (OSError, RuntimeError, ValueError) as error:
        return CannotBuild(f"{error}: {VARIABLE} names another folder, CC a compiler")


def cache_folder() -> Path:
    """The folder that the environment names; made for this user alone unless it is there."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get(VARIABLE) or Path(home) / "fairseq-entmax").expanduser().absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _is_private(folder: Path) -> bool:
    """Whether this user alone can write to a folder: a library runs with all that its user may do."""
    status = folder.stat()
    others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return not hasattr(os, "getuid") or (status.st_uid == os.getuid() and not others_write)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process after the other in, where the system has locks."""
    with (folder / ".lock").open("w") as file:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # some network file systems have none
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compiler() -> list[str]:
    """The command of the compiler."""
    command = shlex.split(os.environ.get("CC", ""))
    found = command or [path for path in map(shutil.which, COMPILERS) if path][:1]
    if not found:
        raise CannotBuild("there is no C compiler: install gcc or clang, or name one in CC")
    return found


def _key(command: list[str]) -> str:
    """What changes with the source, the compiler and the processor."""
    key = hashlib.sha256(repr((command, FLAGS, MORE_FLAGS, platform.libc_ver())).encode())
    for source in sorted(FOLDER.glob("*.[ch]")):
        key.update(source.read_bytes())
    with contextlib.suppress(OSError):
        version = subprocess.run([*command, "--version"], capture_output=True, check=False)
        key.update(version.stdout)
    key.update(f"{platform.machine()} {platform.processor()}".encode())
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as lines:
        key.update(next((x for x in lines if x.startswith(("flags", "Features"))), "").encode())
    return key.hexdigest()[:20]


def _compiled(command: list[str], folder: Path, name: str) -> ctypes.CDLL:
    """The library by the first flags that give one that can be used, put into the folder."""
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work:
        for attempt, more in enumerate(MORE_FLAGS):
            # Each has a name of its own: a loader gives what it has loaded under a name again
            made = Path(work) / f"{attempt}.so"
            arguments = [*FLAGS, *more, str(FOLDER / "kernels.c"), "-o", str(made), "-lm"]
            try:
                result = subprocess.run(
                    [*command, *arguments],
                    capture_output=True,
                    text=True,
                    errors="replace",
                    check=False,
                )
            except OSError as error:
                raise CannotBuild(f"the compiler {command[0]} cannot be run: {error}") from error
            if result.returncode == 0:
                try:
                    with_types(made)
                    os.replace(made, folder / name)
                    return with_types(folder / name)
                except (OSError, AttributeError) as error:  # it lacks a library, or a function
                    failures.append(str(error))
            else:
                failures.append((result.stderr.strip() or "no message").splitlines()[0])
    raise CannotBuild(f"the compiler {' '.join(command)} failed: {failures[0]}")


def with_types(path: Path) -> ctypes.CDLL:
    """Load a library, and say the types of its functions."""
    loaded = ctypes.CDLL(str(path))
    pointer, threads = ctypes.c_void_p, ctypes.c_int
    sizes = [ctypes.c_long] * 2
    types = {
        "rows_forward": [pointer] * 3 + [*sizes, threads],
        "rows_backward": [pointer] * 2 + [*sizes, threads],
        "loss_forward": [pointer] * 3 + [threads],
        "loss_backward": [pointer] * 3 + [threads],
        "attention_forward": [pointer] * 3 + [threads],
        "attention_backward": [pointer] * 3 + [threads],
        "attention_step": [pointer, threads],
        "lanes": [],
    }
    for name, arguments in types.items():
        getattr(loaded, f"entmax_{name}").argtypes = arguments
    return loaded


_is_forked = False


def _remember_fork() -> None:
    """In the child of a fork: compute on one thread, in torch too if the kernel is loaded.

    The kernel and torch share OpenMP, whose records of the parent's threads are in the child,
    where the threads are not: what asks for them waits for ever.
    """
    global _is_forked
    _is_forked = True
    if _try_to_load.cache_info().currsize:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_remember_fork)


def threads_for(numbers: int, parts: int) -> int:
    """Threads for so much work, in so many parts that are done whole; one in a forked process."""
    if _is_forked:
        return 1
    return max(1, min(torch.get_num_threads(), parts, numbers // NUMBERS_A_THREAD))


def address(tensor: Tensor | None) -> int:
    """Where the numbers are; 0, which is null, for None."""
    return 0 if tensor is None else tensor.data_ptr()


def check(failed: int) -> None:
    """Raise MemoryError where a function of the library failed."""
    if failed:
        raise MemoryError("alpha-entmax: there is no memory for the buffers of a row")
