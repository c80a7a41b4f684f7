"""The library in C: compiled on first use, for the machine that it runs on, and cached.

No build is needed to install the package. The library is compiled by the C compiler of the
machine (``CC``, or ``cc``, ``gcc`` or ``clang``) into ``fairseq-entmax`` in the user's cache folder
(``XDG_CACHE_HOME``, else ``~/.cache``; another one by ``FAIRSEQ_ENTMAX_CACHE``), under a name that
changes with the source, the compiler, the system, the processor and its own content. Which folder
is safe is said in :mod:`fairseq_entmax.kernels.native.folders`, what of it is loaded in
:mod:`fairseq_entmax.kernels.native.cache`.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.kernels.native import cache, folders
from fairseq_entmax.kernels.native.compiler import (
    SOURCES,
    CannotBuild,
    compile_library,
    description,
)

logger = logging.getLogger(__name__)

# Fewer numbers than this for a thread do not pay for waking it
NUMBERS_A_THREAD = 32768

# What the functions are named by
TYPES = {torch.float32: "f32", torch.float64: "f64"}


class _Loaded(NamedTuple):
    functions: ctypes.CDLL
    path: Path


@functools.cache
def lanes() -> int:
    """How many rows are computed side by side in float32."""
    return int(library().entmax_lanes())


def load() -> Path:
    """Compile the library unless it is there, and load it; where it is.

    Where no folder is trusted to keep it, it is loaded from a private one that is gone by then.

    Raises:
        CannotBuild: there is no compiler, it fails, or there is no place to write to.
    """
    return _loaded().path


def library() -> ctypes.CDLL:
    """The compiled library, as :func:`load`."""
    return _loaded().functions


def _loaded() -> _Loaded:
    loaded = _try_to_load()
    if isinstance(loaded, CannotBuild):
        raise loaded
    return loaded


@functools.cache
def _try_to_load() -> _Loaded | CannotBuild:
    """The library, or why there is none: it is not tried twice in a process."""
    try:
        folder = folders.named_folder()
        key = _key()
        try:
            folder = folders.prepare(folder)
        except folders.UntrustedError as error:
            with folders.private() as private_folder:
                logger.warning(
                    "the alpha-entmax kernel is compiled for this process alone, because its cache "
                    "%s is not used: %s",
                    folder,
                    error,
                )
                return _compile(private_folder, key)
        except OSError as error:
            raise _cannot_write(folder, error) from error
        cached, _ = _cached(folder, key)
        return cached or _compile(folder, key)
    except CannotBuild as error:
        return error
    except (OSError, RuntimeError, ValueError) as error:
        # A home folder that cannot be looked into, a CC that cannot be read, and the like
        return CannotBuild(f"{error}: {folders.VARIABLE} names another folder, CC a compiler")


def _key() -> str:
    """What changes with the source, the compiler and the processor."""
    key = hashlib.sha256()
    for source in SOURCES:
        key.update(source.read_bytes())
    key.update(description().encode())
    return key.hexdigest()[:20]


def _cached(folder: Path, key: str) -> tuple[_Loaded | None, list[str]]:
    """The library that is in the folder, and why others of its name are not loaded."""
    reasons: list[str] = []
    for path in cache.candidates(folder, key):
        try:
            return _open(path), reasons
        # The latter two: of a system that has changed, and of another source
        except (folders.UntrustedError, OSError, AttributeError) as error:
            reasons.append(str(error))
    return None, reasons


def _compile(folder: Path, key: str) -> _Loaded:
    """Compile the library into the folder, unless another process has done so meanwhile."""
    with cache.locked(folder) as is_locked:
        cached, reasons = _cached(folder, key)
        if cached:
            return cached
        for reason in reasons:
            logger.warning("the alpha-entmax kernel is compiled anew: %s", reason)
        try:
            with cache.workplace(folder, is_locked) as work:
                path = cache.store(compile_library(work, _why_unusable), folder, key)
        except OSError as error:
            raise _cannot_write(folder, error) from error
        return _open(path)


def _cannot_write(folder: Path, error: OSError) -> CannotBuild:
    return CannotBuild(
        f"the folder {folder} cannot be written to ({error.strerror}): name another in "
        f"{folders.VARIABLE}"
    )


def _open(path: Path) -> _Loaded:
    """Load a library of the cache.

    Raises:
        UntrustedError: it could be another user's, or its content is not what it was.
        OSError: it cannot be loaded here.
        AttributeError: it lacks a function.
    """
    name = cache.loadable(cache.opened(path), path)
    try:
        return _Loaded(_with_types(name), path)
    except AttributeError as error:
        raise AttributeError(f"{path} lacks a function ({error})") from error


def _why_unusable(path: Path) -> str:
    """What is wrong with a library that has been compiled; empty where nothing is."""
    try:
        _with_types(str(path))
    # A library that it needs, such as OpenMP's, is not there; or what CC names makes another one
    except (OSError, AttributeError) as error:
        return str(error)
    return ""


def _with_types(name: str) -> ctypes.CDLL:
    """The library that a loader finds by this name, with the types of its functions.

    Raises:
        OSError: it cannot be loaded.
        AttributeError: it lacks a function.
    """
    loaded = ctypes.CDLL(name)
    pointer, number, threads = ctypes.c_void_p, ctypes.c_long, ctypes.c_int
    for kind in TYPES.values():
        forward = getattr(loaded, f"entmax_forward_{kind}")
        forward.argtypes = [pointer] * 2 + [number] * 2 + [pointer] + [number] * 2 + [threads]
        backward = getattr(loaded, f"entmax_backward_{kind}")
        backward.argtypes = [pointer] * 2 + [number] * 2 + [pointer] * 3 + [number] * 2 + [threads]
    real = ctypes.c_double
    loaded.entmax_loss_forward.argtypes = (
        [pointer] * 2 + [real] * 2 + [pointer] * 4 + [number] * 2 + [threads]
    )
    loaded.entmax_loss_backward.argtypes = loaded.entmax_loss_forward.argtypes
    loaded.entmax_structured_forward.argtypes = [pointer] * 3 + [number] * 2 + [threads]
    loaded.entmax_structured_backward.argtypes = [pointer] * 7 + [number] * 2 + [threads]
    loaded.entmax_attention_forward.argtypes = [pointer] * 9 + [threads]
    loaded.entmax_attention_take.argtypes = [pointer] * 2 + [number] + [pointer] * 2
    loaded.entmax_attention_backward.argtypes = [pointer] * 7 + [threads]
    loaded.entmax_structured_attention_forward.argtypes = [pointer] * 6 + [threads]
    loaded.entmax_structured_attention_backward.argtypes = [pointer] * 3 + [threads]
    loaded.entmax_attention_step.argtypes = [pointer, threads]
    loaded.entmax_lanes.argtypes = []
    return loaded


_is_forked = False


def _remember_fork() -> None:
    """In the child of a fork: compute on one thread, in torch too if the kernel is loaded.

    The kernel and torch share OpenMP, whose records of the parent's threads are in the child,
    where the threads are not: what asks for them waits for ever. A fork before this module was
    imported is not known.
    """
    global _is_forked
    _is_forked = True
    if _try_to_load.cache_info().currsize:
        torch.set_num_threads(1)


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_remember_fork)


def threads_for(numbers: int, parts: int) -> int:
    """Threads for so much work, in so many parts that are done whole.

    One in a process that was forked, see :func:`_remember_fork`.
    """
    if _is_forked:
        return 1
    return max(1, min(torch.get_num_threads(), parts, numbers // NUMBERS_A_THREAD))


def address(tensor: Tensor | None) -> int | None:
    """Where the numbers are; null for None."""
    return None if tensor is None else tensor.data_ptr()


def check(failed: int) -> None:
    """Raise MemoryError where a function of the library failed."""
    if failed:
        raise MemoryError("alpha-entmax: there is no memory for the buffers of a row")
