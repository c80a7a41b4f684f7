"""Fast versions of the mapping: the same numbers, chosen at run time. Needs torch alone.

``FAIRSEQ_ENTMAX_KERNEL`` in the environment says which one runs:

* ``auto``, the default: the fastest that is there;
* ``torch``: torch's own operations, everywhere;
* ``native``: C, compiled on first use, for float32 and float64 on a CPU;
* ``triton``: Triton, on a CUDA device, for float32 and, where attention is computed as a whole,
  float16 and bfloat16. With ``TRITON_INTERPRET=1`` it runs on a CPU too, very slowly, for tests.

A backend is a module with the functions ``probabilities`` and ``gradients`` of
:mod:`fairseq_entmax.kernels.native.rows`.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import torch
from torch import Tensor

from fairseq_entmax.kernels.native import attention as native_attention
from fairseq_entmax.kernels.native import library as native_library
from fairseq_entmax.kernels.native import rows as native_rows

logger = logging.getLogger(__name__)

VARIABLE = "FAIRSEQ_ENTMAX_KERNEL"
AUTO, TORCH, NATIVE, TRITON = "auto", "torch", "native", "triton"
CHOICES = (AUTO, TORCH, NATIVE, TRITON)
# Kernels call functions that older releases do not have
LEAST_TRITON = (3, 0)


@dataclass(frozen=True)
class FusedEntmax:
    """Alpha-entmax as a kernel for the whole of attention takes it.

    Attributes:
        epsilon: alpha - 1, a number above 0, or a tensor ``(heads,)``, or ``(1,)`` for all heads.
    """

    epsilon: float | Tensor


_said: set[str] = set()


def chosen() -> str:
    """What the environment asks for.

    Raises:
        ValueError: it is none of :data:`CHOICES`.
    """
    name = os.environ.get(VARIABLE, AUTO) or AUTO
    if name not in CHOICES:
        raise ValueError(f"{VARIABLE} must be one of {', '.join(CHOICES)}, not {name!r}")
    return name


def backend_for(scores: Tensor) -> ModuleType | None:
    """The backend for a tensor of scores; None for torch's own operations.

    The first choice of a process is logged.

    Raises:
        ValueError: the environment asks for an unknown backend.
        RuntimeError: it asks for one that cannot be had here.
    """
    name = chosen()
    if _is_traced():
        return None
    if name == TRITON or (name == AUTO and scores.is_cuda):
        return _triton("rows", scores)
    if name == TORCH:
        _say("alpha-entmax runs on torch's own operations, as %s says", VARIABLE)
        return None
    if not native_rows.takes(scores):
        where = f"{scores.dtype} on {scores.device.type}"
        _say("alpha-entmax runs on torch's own operations for %s, which no kernel is for", where)
        return None
    try:
        path = native_library.load()
    except native_library.CannotBuild as error:
        if name == NATIVE:
            raise RuntimeError(f"{VARIABLE}={NATIVE}: {error}") from error
        _say(
            "alpha-entmax runs on torch's own operations on this CPU, which is several times "
            "slower than the native kernel: %s",
            error,
            level=logging.WARNING,
        )
        return None
    _say("alpha-entmax runs on the native kernel: %s", path)
    return native_rows


def attention_for(query: Tensor, dtype: torch.dtype, head_dim: int) -> Callable[..., Tensor] | None:
    """The whole of attention as one function, where there is a kernel for it.

    Args:
        query: on the device of what will be attended with.
        dtype: what it will be computed in.
        head_dim: size of a head.

    Returns:
        ``attention`` of :mod:`fairseq_entmax.kernels.native.attention` or of
        :mod:`fairseq_entmax.kernels.triton.attention`, or None where scores, mapping and weighted
        sum are to be computed apart.

    Raises:
        ValueError, RuntimeError: as :func:`backend_for`.
    """
    name = chosen()
    if _is_traced():
        return None
    if name == TRITON or (name == AUTO and query.is_cuda):
        found = _triton("attention", query.new_empty((1, 1, 1, head_dim), dtype=dtype))
        return None if found is None else found.attention
    if dtype != query.dtype or not native_attention.takes(query):
        return None
    return native_attention.attention if backend_for(query) is native_rows else None


def _is_traced() -> bool:
    """Whether operations are recorded or watched: what a kernel does would not be seen."""
    return bool(
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch._C._len_torch_dispatch_stack()
    )


def _triton(module: str, tensor: Tensor) -> ModuleType | None:
    """A module of Triton kernels if it takes the tensor; it is imported here for the first time."""
    forced = chosen() == TRITON
    missing = _why_no_triton(tensor.device)
    if missing:
        if forced:
            raise RuntimeError(f"{VARIABLE}={TRITON}: {missing}")
        message = "alpha-entmax runs on torch's own operations on this GPU, not in Triton: %s"
        _say(message, missing, level=logging.WARNING)
        return None
    kernels = importlib.import_module(f"{__name__}.triton.{module}")
    if forced and not tensor.is_cuda and not kernels.INTERPRETED:
        raise RuntimeError(
            f"{VARIABLE}={TRITON} is for CUDA devices, not for {tensor.device}: take auto, or set "
            f"TRITON_INTERPRET=1 to run the kernels in Triton's interpreter"
        )
    if not kernels.takes(tensor):
        return None
    where = " in its interpreter" if kernels.INTERPRETED else ""
    _say("alpha-entmax runs on Triton kernels%s", where)
    return kernels


@functools.cache
def _why_no_triton(device: torch.device) -> str:
    """What is wrong with Triton and what to do; empty where nothing is."""
    try:
        version = importlib.import_module("triton").__version__
    except ImportError as error:
        return f"triton cannot be imported ({error}): pip install triton"
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST_TRITON:
        least = ".".join(map(str, LEAST_TRITON))
        return f"triton is {version}, older than {least}: pip install --upgrade triton"
    rows = importlib.import_module(f"{__name__}.triton.rows")
    probe = torch.zeros(1, 1, device=device)
    try:
        if rows.takes(probe):
            rows.probabilities(probe, 0.5)
    except Exception as error:
        # No C compiler for what launches a kernel, a GPU too old for Triton: it has many ways
        # to fail, and none of them is to stop a training that can do without it
        what = (str(error).strip() or "no message").splitlines()[0]
        return f"its kernels do not run here ({type(error).__name__}: {what})"
    return ""


def _say(message: str, *values: object, level: int = logging.INFO) -> None:
    if message not in _said:
        _said.add(message)
        logger.log(level, message, *values)
