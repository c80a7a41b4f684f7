"""The library in C: compiled on first use, for the machine that it runs on, and cached.

No build is needed to install the package. The library is compiled by the C compiler of the
machine (``CC``, or ``cc``, ``gcc`` or ``clang``) into ``fairseq-entmax`` in the user's cache folder
(``XDG_CACHE_HOME``, else ``~/.cache``; another one by ``FAIRSEQ_ENTMAX_CACHE``), under a name that
changes with the source, the compiler, the system and the processor.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

import torch
from torch import Tensor

SOURCES = ("kernels.c", "vectors.h", "block.h", "rows_f32.h", "rows_f64.h", "attention.h")
COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    *("-O3", "-std=gnu11", "-fno-math-errno", "-fno-trapping-math"),
    *("-fwrapv", "-shared", "-fPIC"),  # exponents of what is masked away may overflow
)
# What is tried in turn: not every compiler has OpenMP, or can compile for its own processor
MORE_FLAGS = (("-march=native", "-fopenmp"), ("-fopenmp",), ("-march=native",), ())
SECONDS_TO_COMPILE = 300
# Behind the code, where a loader does not look
LAST_BYTES = b"\nfairseq-entmax: whole\n"
# Fewer numbers than this for a thread do not pay for waking it
NUMBERS_A_THREAD = 32768

# What the functions are named by
TYPES = {torch.float32: "f32", torch.float64: "f64"}


class CannotBuild(RuntimeError):
    """The library cannot be compiled here; says why and what to do."""


def lanes() -> int:
    """How many rows are computed side by side in float32."""
    return int(library().entmax_lanes())


def load() -> Path:
    """Compile the library unless it is there, and load it; where it is.

    Raises:
        CannotBuild: there is no compiler, it fails, or there is no place to write to.
    """
    library()
    return _path()


def library() -> ctypes.CDLL:
    """The compiled library, as :func:`load`."""
    found = _library()
    if isinstance(found, CannotBuild):
        raise found
    return found


@functools.cache
def _library() -> ctypes.CDLL | CannotBuild:
    """The library, or why there is none: it is not tried twice in a process."""
    try:
        path = _path()
        if not _is_whole(path):
            _compile(path)
        try:
            loaded = ctypes.CDLL(str(path))
        except OSError:  # of a system that has changed
            _compile(path)
            loaded = ctypes.CDLL(str(path))
    except CannotBuild as error:
        return error
    except (OSError, RuntimeError, ValueError) as error:
        # A home folder that cannot be looked into, a CC that cannot be read, and the like
        return CannotBuild(f"{error}: FAIRSEQ_ENTMAX_CACHE names another folder, CC a compiler")
    pointer, number, threads = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
    for kind in TYPES.values():
        forward = getattr(loaded, f"entmax_forward_{kind}")
        forward.argtypes = [pointer] * 2 + [number] * 2 + [pointer] + [number] * 2 + [threads]
        backward = getattr(loaded, f"entmax_backward_{kind}")
        backward.argtypes = [pointer] * 2 + [number] * 2 + [pointer] * 3 + [number] * 2 + [threads]
    loaded.entmax_attention_forward.argtypes = [pointer] * 6 + [threads]
    loaded.entmax_attention_backward.argtypes = [pointer] * 3 + [threads]
    return loaded


@functools.cache
def _path() -> Path:
    """Where the library of this source, compiler and processor is."""
    key = hashlib.sha256()
    for name in SOURCES:
        key.update((Path(__file__).parent / name).read_bytes())
    system = (*platform.libc_ver(), _processor())
    key.update(repr((_compiler(), _version(), FLAGS, MORE_FLAGS, system)).encode())
    return _cache() / f"entmax-{key.hexdigest()[:20]}.so"


def _is_whole(path: Path) -> bool:
    """Whether the file is there to its last byte: the system kills who loads less."""
    try:
        with open(path, "rb") as file:
            file.seek(-len(LAST_BYTES), os.SEEK_END)
            return file.read() == LAST_BYTES
    except OSError:
        return False


def _cache() -> Path:
    given = os.environ.get("FAIRSEQ_ENTMAX_CACHE")
    if given:
        return Path(given).expanduser().resolve()
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fairseq-entmax"
    except RuntimeError as error:
        raise CannotBuild(
            "there is no home folder to keep the library in: name a folder in FAIRSEQ_ENTMAX_CACHE"
        ) from error


def _processor() -> str:
    """What instructions the processor has, as far as the system says."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if line.startswith(("flags", "Features")):
                    return f"{platform.machine()} {line}"
    except OSError:
        pass
    return f"{platform.machine()} {platform.processor()}"


def _compiler() -> list[str]:
    """The command of the compiler.

    Raises:
        CannotBuild: there is none.
    """
    given = shlex.split(os.environ.get("CC", ""))
    if given:
        return given
    for name in COMPILERS:
        found = shutil.which(name)
        if found:
            return [found]
    raise CannotBuild("there is no C compiler: install gcc or clang, or name one in CC")


def _version() -> str:
    """What the compiler says that it is; empty if it does not."""
    try:
        command = [*_compiler(), "--version"]
        result = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return result.stdout


def _compile(path: Path) -> None:
    """Compile to a file of its own, and give it its name when it is whole."""
    source = Path(__file__).parent / SOURCES[0]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=path.parent)
    except OSError as error:
        raise CannotBuild(
            f"the folder {path.parent} cannot be written to ({error.strerror}): name another in "
            f"FAIRSEQ_ENTMAX_CACHE"
        ) from error
    with folder as name:
        made = Path(name) / path.name
        message = ""
        for more in MORE_FLAGS:
            command = [*_compiler(), *FLAGS, *more, str(source), "-o", str(made), "-lm"]
            try:
                result = subprocess.run(
                    command,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    check=False,
                    timeout=SECONDS_TO_COMPILE,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                raise CannotBuild(f"the compiler {command[0]} cannot be run: {error}") from error
            failure = result.stderr.strip() or "no message"
            if result.returncode == 0 and made.exists():
                try:
                    ctypes.CDLL(str(made))
                except OSError as error:  # a library that it needs, such as OpenMP's, is not there
                    failure = str(error)
                else:
                    with open(made, "ab") as file:
                        file.write(LAST_BYTES)
                    os.replace(made, path)
                    return
            message = message or failure.splitlines()[0]
    raise CannotBuild(f"the compiler {' '.join(_compiler())} failed: {message}")


def threads_for(numbers: int, parts: int) -> int:
    """Threads for so much work, in so many parts that are done whole."""
    return max(1, min(torch.get_num_threads(), parts, numbers // NUMBERS_A_THREAD))


def address(tensor: Tensor | None) -> int | None:
    """Where the numbers are; null for None."""
    return None if tensor is None else tensor.data_ptr()


def check(failed: int) -> None:
    """Raise MemoryError where a function of the library failed."""
    if failed:
        raise MemoryError("alpha-entmax: there is no memory for the buffers of a row")
