"""Mappings with structure in C, on rows of float32 on a CPU.

The C code is ``structured.h`` and what it takes, compiled together with the rest by
:mod:`fairseq_entmax.kernels.native.library`.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from fairseq_entmax.kernels.inputs import epsilon_of_rows
from fairseq_entmax.kernels.native import rows
from fairseq_entmax.kernels.native.library import address, check, lanes, library, threads_for
from fairseq_entmax.kernels.structure import OSCAR, PNORM, TV

# As in structured.h, where 0 is a mapping without structure
NUMBERS = {TV: 1, OSCAR: 2, PNORM: 3}


class _OfRows(ctypes.Structure):
    """As in kernels.c: the parameters of rows, and which mapping."""

    _fields_ = (
        ("epsilon", ctypes.c_void_p),
        ("inner", ctypes.c_long),
        ("count", ctypes.c_long),
        ("strength", ctypes.c_void_p),
        ("strength_inner", ctypes.c_long),
        ("strength_count", ctypes.c_long),
        ("kind", ctypes.c_int),
    )


def takes(scores: Tensor, kind: str) -> bool:
    """Whether the kernel is for such scores: float32 on a CPU, of every kind."""
    return rows.takes(scores) and kind in NUMBERS


def probabilities(
    scores: Tensor, kind: str, epsilon: float | Tensor, strength: float | Tensor
) -> Tensor:
    """As :meth:`fairseq_entmax.kernels.backends.StructuredRows.probabilities`."""
    scores = scores.contiguous()
    probs = torch.empty_like(scores)
    _run("forward", scores, kind, (epsilon, strength), probs)
    return probs


def gradients(
    probs: Tensor,
    kind: str,
    epsilon: float | Tensor,
    strength: float | Tensor,
    masked: Tensor | None,
    grad: Tensor,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """As :meth:`fairseq_entmax.kernels.backends.StructuredRows.gradients`."""
    grad = grad.resolve_neg().contiguous()
    probs = probs.contiguous()
    if masked is not None:
        masked = masked.expand(probs.shape).contiguous()
    for_scores = torch.empty_like(probs) if wanted[0] else None
    for_epsilon, for_strength = (
        probs.new_zeros((*probs.shape[:-1], 1)) if is_wanted else None for is_wanted in wanted[1:]
    )
    given = (masked, grad, for_scores, for_epsilon, for_strength)
    _run("backward", probs, kind, (epsilon, strength), *given)
    return for_scores, for_epsilon, for_strength


def _run(
    direction: str,
    scores: Tensor,
    kind: str,
    parameters: tuple[float | Tensor, float | Tensor],
    *others: Tensor | None,
) -> None:
    """Call the function of the library for a direction, which takes ``others`` too."""
    keys = scores.size(-1)
    number = scores.numel() // keys if keys else 0
    if not number:
        return
    of_rows = [epsilon_of_rows(value, scores, scores.dtype) for value in parameters]
    given = [part for values, *places in of_rows for part in (address(values), *places)]
    failed = getattr(library(), f"entmax_structured_{direction}")(
        address(scores),
        ctypes.byref(_OfRows(*given, NUMBERS[kind])),
        *(address(tensor) for tensor in others),
        *(number, keys, threads_for(number * keys, -(-number // lanes()))),
    )
    check(failed)
