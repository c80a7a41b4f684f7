"""Fast versions of the mapping: the same numbers, chosen at run time. Needs torch alone.

``FAIRSEQ_ENTMAX_KERNEL`` in the environment says which one runs:

* ``auto``, the default: the fastest that is there;
* ``torch``: torch's own operations, everywhere;
* ``native``: C, compiled on first use, for float32 on a CPU;
* ``triton``: Triton, on a CUDA device, for float32 and, where attention is computed as a whole,
  float16 and bfloat16. With ``TRITON_INTERPRET=1`` it runs on a CPU too, very slowly, for tests.

A backend has the functions of :mod:`fairseq_entmax.kernels.backends`, those of torch included.
Softmax with a fixed alpha of 1 always runs on torch's own operations, and asks for no kernel.
"""

from __future__ import annotations

import functools
import importlib
import logging
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.kernels import torch_losses, torch_structured
from fairseq_entmax.kernels.backends import Losses, Rows
from fairseq_entmax.kernels.native import attention as native_attention
from fairseq_entmax.kernels.native import decoding as native_decoding
from fairseq_entmax.kernels.native import library as native_library
from fairseq_entmax.kernels.native import losses as native_losses
from fairseq_entmax.kernels.native import rows as native_rows
from fairseq_entmax.kernels.structure import PLAIN

logger = logging.getLogger(__name__)

VARIABLE = "FAIRSEQ_ENTMAX_KERNEL"
AUTO, TORCH, NATIVE, TRITON = "auto", "torch", "native", "triton"
CHOICES = (AUTO, TORCH, NATIVE, TRITON)
# The modules of a package of kernels, and what they offer
ROWS, ATTENTION, LOSSES, DECODING = "rows", "attention", "losses", "decoding"
NATIVE_PARTS: dict[str, Any] = {
    ROWS: native_rows,
    ATTENTION: native_attention,
    LOSSES: native_losses,
    DECODING: native_decoding,
}
TRITON_PARTS = (ROWS, ATTENTION)

WITHOUT_KERNEL = "the mapping%s runs on torch's own operations for %s on %s, which no kernel is for"
INSTEAD_OF = {
    NATIVE: "alpha-entmax runs on torch's own operations on this CPU, which is several times "
    "slower than the native kernel: %s",
    TRITON: "alpha-entmax runs on torch's own operations on this GPU, not in Triton: %s",
}


class NoKernelError(RuntimeError):
    """The kernel that the environment asks for cannot be had; says why and what to do."""


class UnknownKernelError(ValueError):
    """The environment asks for a kernel that there is not."""


# Of a user, who is to read one sentence
ERRORS = (NoKernelError, UnknownKernelError, native_library.CannotBuild)


_said: set[str] = set()


def chosen() -> str:
    """What the environment asks for."""
    name = os.environ.get(VARIABLE, AUTO) or AUTO
    if name not in CHOICES:
        raise UnknownKernelError(f"{VARIABLE} must be one of {', '.join(CHOICES)}, not {name!r}")
    return name


def backend_for(scores: Tensor, epsilon: float | Tensor, kind: str = PLAIN) -> Rows:
    """The backend for a tensor of scores; the first choice of a process is logged.

    At the number 0 without structure torch has its own fast kernel, whatever is asked for.
    """
    is_softmax = not kind and isinstance(epsilon, float) and epsilon == 0.0
    backend: Rows | None = None if is_softmax else _kernel(ROWS, scores, kind)
    return torch_structured if backend is None else backend


def losses_for(scores: Tensor, epsilon: float) -> Losses:
    """The backend for the loss of a target, as :func:`backend_for`."""
    backend: Losses | None = None if epsilon == 0.0 else _kernel(LOSSES, scores)
    return torch_losses if backend is None else backend


def attention_for(query: Tensor, dtype: torch.dtype, head_dim: int) -> Callable[..., Tensor] | None:
    """The whole of attention (:func:`fairseq_entmax.kernels.attention.attention`), or None."""
    backend = _kernel(ATTENTION, query, PLAIN, dtype, head_dim)
    return None if backend is None else backend.attention


def step_for(query: Tensor) -> Callable[..., tuple[Tensor, Tensor | None]] | None:
    """Attention of one query of each hypothesis as one function, or None: it is in C alone."""
    if query.device.type != "cpu" or chosen() == TRITON:
        return None
    backend = _kernel(DECODING, query)
    return None if backend is None else backend.step


def _kernel(part: str, tensor: Tensor, kind: str = PLAIN, *form: Any) -> Any:
    """The module for a part of the work, whose ``takes`` has these arguments; None for torch's."""
    asked = chosen()
    if asked == TORCH:
        _say("alpha-entmax runs on torch's own operations, as %s says", VARIABLE)
        return None
    name = asked if asked != AUTO else TRITON if tensor.is_cuda else NATIVE
    is_for = part in TRITON_PARTS and not kind
    if name == NATIVE:
        is_for = NATIVE_PARTS[part].takes(tensor, *form)
    if not is_for:
        if part == ROWS:  # the rows of what attention does not take may yet be for a kernel
            named = f" with structure {kind}" if kind else ""
            _say(WITHOUT_KERNEL, named, tensor.dtype, tensor.device.type)
        return None
    kernels = _usable(name, part, tensor.device, asked == name)
    if name == NATIVE or kernels is None or not kernels.takes(tensor, *form):
        return kernels if name == NATIVE else None
    where = " in its interpreter" if kernels.INTERPRETED else ""
    _say("alpha-entmax runs on Triton kernels%s", where)
    return kernels


@functools.cache
def _usable(name: str, part: str, device: torch.device, is_asked: bool) -> Any:
    """The module of a kernel's part; None, or an error where it is asked for, if it cannot run."""
    missing = _why_no_native() if name == NATIVE else _why_no_triton(device)
    if missing and is_asked:
        raise NoKernelError(
            f"{VARIABLE}={name}: {missing}; or set {VARIABLE}={AUTO}, which does without it"
        )
    if missing:
        _say(INSTEAD_OF[name], missing, level=logging.WARNING)
        return None
    if name == NATIVE:
        _say("alpha-entmax runs on the native kernel: %s", native_library.library()._name)
        return NATIVE_PARTS[part]
    kernels = importlib.import_module(f"{__name__}.triton.{part}")
    if not (device.type == "cuda" or kernels.INTERPRETED):
        raise NoKernelError(
            f"{VARIABLE}={TRITON} is for CUDA devices, not for {device}: take auto, or set "
            f"TRITON_INTERPRET=1 to run the kernels in Triton's interpreter"
        )
    return kernels


def _why_no_native() -> str:
    """What is wrong with the library in C and what to do; empty where nothing is."""
    try:
        native_library.library()
    except native_library.CannotBuild as error:
        return str(error)
    return ""


@functools.cache
def _why_no_triton(device: torch.device) -> str:
    """What is wrong with Triton and what to do; empty where nothing is."""
    try:
        importlib.import_module("triton")
    except ImportError as error:
        return f"triton cannot be imported ({error}): pip install triton"
    rows = importlib.import_module(f"{__name__}.triton.rows")
    probe = torch.zeros(1, 1, device=device)
    try:
        if rows.takes(probe):
            rows.probabilities(probe, PLAIN, 0.5)
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
