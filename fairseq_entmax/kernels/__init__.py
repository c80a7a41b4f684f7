"""Fast versions of the mappings, with the same results, chosen at run time. Needs only torch.

``FAIRSEQ_ENTMAX_KERNEL`` in the environment says which version runs:

* ``auto``, the default: the fastest one available;
* ``torch``: torch's own operations, everywhere;
* ``native``: C, compiled on first use, for float32 on a CPU;
* ``triton``: Triton, on a CUDA device, for float32 and, where attention is computed as a whole,
  float16 and bfloat16. With ``TRITON_INTERPRET=1`` it runs on a CPU too, very slowly, for tests.

Every backend, torch's included, has the functions of :mod:`fairseq_entmax.kernels.backends`.
Softmax with a fixed alpha of 1 always runs on torch's own operations, without a kernel.
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

from fairseq_entmax.kernels import native, torch_losses, torch_structured, triton
from fairseq_entmax.kernels.backends import ATTENTION, DECODING, LOSSES, ROWS, Kernel, Losses, Rows
from fairseq_entmax.kernels.structure import PLAIN

logger = logging.getLogger(__name__)

VARIABLE = "FAIRSEQ_ENTMAX_KERNEL"
AUTO, TORCH, NATIVE, TRITON = "auto", "torch", "native", "triton"
KERNELS: dict[str, Kernel] = {one.KERNEL.name: one.KERNEL for one in (native, triton)}
CHOICES = (AUTO, TORCH, *KERNELS)


class NoKernelError(RuntimeError):
    """The kernel that the environment asks for cannot run; the message says why and what to do."""


class UnknownKernelError(ValueError):
    """The environment asks for a kernel that does not exist."""


# A user's errors, to be shown as one sentence
ERRORS = (NoKernelError, UnknownKernelError, native.library.CannotBuild)


_logged: set[str] = set()


def chosen() -> str:
    """The name of the kernel that the environment asks for."""
    name = os.environ.get(VARIABLE, AUTO) or AUTO
    if name not in CHOICES:
        raise UnknownKernelError(f"{VARIABLE} must be one of {', '.join(CHOICES)}, not {name!r}")
    return name


def backend_for(scores: Tensor, epsilon: float | Tensor, structure: str = PLAIN) -> Rows:
    """The backend for a tensor of scores; a process logs its first choice.

    If epsilon is the number 0, without structure, it is always torch, which has a fast softmax.
    """
    is_softmax = not structure and isinstance(epsilon, float) and epsilon == 0.0
    backend: Rows | None = None if is_softmax else _kernel(ROWS, scores, structure)
    return torch_structured if backend is None else backend


def losses_for(scores: Tensor, epsilon: float) -> Losses:
    """The backend for the loss of a target, chosen as in :func:`backend_for`."""
    backend: Losses | None = None if epsilon == 0.0 else _kernel(LOSSES, scores)
    return torch_losses if backend is None else backend


def attention_for(query: Tensor, dtype: torch.dtype, head_dim: int) -> Callable[..., Tensor] | None:
    """Whole attention (:func:`fairseq_entmax.kernels.attention.attention`), or None for torch."""
    backend = _kernel(ATTENTION, query, PLAIN, dtype, head_dim)
    return None if backend is None else backend.attention


def step_for(query: Tensor) -> Callable[..., tuple[Tensor, Tensor | None]] | None:
    """Attention of one query per hypothesis, or None: only the kernel in C has it."""
    backend = _kernel(DECODING, query)
    return None if backend is None else backend.step


def _kernel(part: str, tensor: Tensor, structure: str = PLAIN, *form: Any) -> Any:
    """The module for a part of the work, or None for torch. Its ``supports`` also gets ``form``."""
    requested, device = chosen(), tensor.device
    if requested == TORCH:
        _log_once("alpha-entmax runs on torch's own operations, as set by %s", VARIABLE)
        return None
    dtype = form[0] if form else tensor.dtype
    for kernel in KERNELS.values():
        is_meant = kernel.device == device.type if requested == AUTO else kernel.name == requested
        fits = kernel.has_structure or not structure
        if is_meant and fits and part in kernel.parts and dtype in kernel.dtypes:
            module = _usable(kernel.name, part, device, requested == kernel.name)
            if module is None or module.supports(tensor, *form):
                return module
    if part == ROWS:  # rows may still have a kernel if attention as a whole has none
        named = f" with structure {structure}" if structure else ""
        _log_once(
            "the mapping%s runs on torch's own operations: there is no kernel for it with %s on %s",
            *(named, dtype, device.type),
        )
    return None


@functools.cache
def _usable(name: str, part: str, device: torch.device, is_requested: bool) -> Any:
    """The module of a kernel's part. If it cannot run: an error if it was requested, else None."""
    kernel = KERNELS[name]
    missing = kernel.missing(device)
    if missing and is_requested:
        raise NoKernelError(
            f"{VARIABLE}={name}: {missing}; or set {VARIABLE}={AUTO}, which runs without it"
        )
    if missing:
        cost = f"alpha-entmax runs on torch's own operations {kernel.cost}: %s"
        _log_once(cost, missing, level=logging.WARNING)
        return None
    _log_once(f"alpha-entmax runs on {kernel.about()}")
    return importlib.import_module(kernel.parts[part])


def _log_once(message: str, *values: object, level: int = logging.INFO) -> None:
    if message not in _logged:
        _logged.add(message)
        logger.log(level, message, *values)
