"""The C library: compiled on first use, for the machine that it runs on, and cached.

Installing the package needs no build. The machine's C compiler (``CC``, or ``cc``, ``gcc`` or
``clang``) puts the library into the folder that ``FAIRSEQ_ENTMAX_CACHE`` names, by default
``fairseq-entmax`` in the user's cache folder (``XDG_CACHE_HOME``, else ``~/.cache``). The name of
the file changes with the source, the compiler, its flags and the processor. If others can write to
the folder, or this user cannot, the library is compiled for this process alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
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

logger = logging.getLogger(__name__)

VARIABLE = "FAIRSEQ_ENTMAX_CACHE"
FOLDER = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    *("-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math"),
    "-falign-loops=64",  # otherwise a short loop's speed depends on the code before it
    *("-fwrapv", "-shared", "-fPIC"),  # exponents of values that are masked out may overflow
)
# Tried in turn: not every compiler has OpenMP, or can compile for the processor it runs on
MORE_FLAGS = (("-march=native", "-fopenmp"), ("-fopenmp",), ("-march=native",), ())
# A thread is not worth waking for fewer numbers than this
NUMBERS_A_THREAD = 32768


class CannotBuild(RuntimeError):
    """The library cannot be compiled here; the message says why and what to do."""


@functools.cache
def lanes() -> int:
    """How many rows are computed side by side."""
    return int(library().entmax_lanes())


def library() -> ctypes.CDLL:
    """The library, compiled if it is not cached; raises :class:`CannotBuild`."""
    loaded = _try_to_load()
    if isinstance(loaded, CannotBuild):
        raise loaded
    return loaded


@functools.cache
def _try_to_load() -> ctypes.CDLL | CannotBuild:
    """The library, or why there is none. A process tries only once."""
    try:
        command = _compiler()
        name = f"entmax-{_key(command)}.so"
        try:
            folder = cache_folder()
            if loaded := _loaded(folder / name):  # needs no lock, in a folder that is read-only
                return loaded
            with _locked(folder):
                return _loaded(folder / name) or _compiled(command, folder, name)
        except OSError as error:
            logger.warning(
                "the alpha-entmax kernel is compiled for this process alone (%s): give a folder of "
                "your own in %s",
                *(error, VARIABLE),
            )
            with tempfile.TemporaryDirectory(prefix="fairseq-entmax-") as temporary:
                return _compiled(command, Path(temporary), name)
    except CannotBuild as error:
        return error
    except (OSError, RuntimeError, ValueError) as error:
        return CannotBuild(f"{error}: set {VARIABLE} to another folder, or CC to a compiler")


def cache_folder() -> Path:
    """The folder that the environment names; created for this user alone if it does not exist.

    Raises OSError if there is none to which only this user can write: a library runs with its
    user's permissions.
    """
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get(VARIABLE) or Path(home) / "fairseq-entmax").expanduser().absolute()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others can write to {folder}")
    return folder


def _loaded(path: Path) -> ctypes.CDLL | None:
    """The library in a file; None if it is missing, damaged or truncated."""
    with contextlib.suppress(OSError, AttributeError):
        return with_types(path)
    return None


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Admit one process at a time, if the file system has locks."""
    with (folder / ".lock").open("w") as file:
        with contextlib.suppress(OSError):  # some network file systems have none
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compiler() -> list[str]:
    """The compiler's command; raises :class:`CannotBuild` if there is none."""
    command = shlex.split(os.environ.get("CC", ""))
    found = command or [path for path in map(shutil.which, COMPILERS) if path][:1]
    if not found:
        raise CannotBuild("there is no C compiler: install gcc or clang, or set CC to one")
    return found


def _key(command: list[str]) -> str:
    """A hash of the source, the compiler, its flags and the processor."""
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
    """Compile with the first flags that give a usable library, and put it into the folder."""
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work:
        for attempt, more in enumerate(MORE_FLAGS):
            # Each gets its own name: a loader returns what it has already loaded under a name
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
                except (OSError, AttributeError) as error:  # a library or a function is missing
                    failures.append(str(error))
            else:
                failures.append((result.stderr.strip() or "no message").splitlines()[0])
    raise CannotBuild(f"the compiler {' '.join(command)} failed: {failures[0]}")


def with_types(path: Path) -> ctypes.CDLL:
    """Load a library, and declare the argument types of its functions."""
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
    """In a forked child, compute on one thread, and in torch too if the kernel is loaded.

    The kernel and torch share OpenMP. A child inherits its records of the parent's threads, but not
    the threads: code that needs them waits for ever.
    """
    global _is_forked
    _is_forked = True
    if _try_to_load.cache_info().currsize:
        torch.set_num_threads(1)


os.register_at_fork(after_in_child=_remember_fork)


def threads_for(numbers: int, parts: int) -> int:
    """How many threads to use for ``numbers`` in indivisible ``parts``; one in a forked process."""
    if _is_forked:
        return 1
    return max(1, min(torch.get_num_threads(), parts, numbers // NUMBERS_A_THREAD))


def address(tensor: Tensor | None) -> int:
    """The address of a tensor's data; 0, the null pointer, for None."""
    return 0 if tensor is None else tensor.data_ptr()


def check(failed: int) -> None:
    """Raise MemoryError if a function of the library failed."""
    if failed:
        raise MemoryError("alpha-entmax: there is not enough memory for the buffers of a row")
