"""Mappings in C, with or without structure, on rows of float32 on a CPU: ``rows_f32.h``."""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from fairseq_entmax.kernels.backends import Gradients
from fairseq_entmax.kernels.inputs import values_of_rows
from fairseq_entmax.kernels.native.library import address, check, lanes, library, threads_for
from fairseq_entmax.kernels.structure import OSCAR, PLAIN, PNORM, TV

# As in structured.h
NUMBERS = {PLAIN: 0, TV: 1, OSCAR: 2, PNORM: 3}
# The OfRows struct of rows_f32.h
_OF_ROWS = struct.Struct("P2lP2li")


def supports(scores: Tensor) -> bool:
    """Whether the kernel takes such scores: dense ones on a CPU."""
    return scores.device.type == "cpu" and scores.layout == torch.strided and not scores.is_neg()


def probabilities(
    scores: Tensor, structure: str, epsilon: float | Tensor, strength: float | Tensor = 0.0
) -> Tensor:
    """As :meth:`fairseq_entmax.kernels.backends.Rows.probabilities`."""
    scores = scores.contiguous()
    probs = torch.empty_like(scores)
    _run("forward", scores, structure, (epsilon, strength), address(scores), address(probs))
    return probs


def gradients(
    probs: Tensor,
    structure: str,
    epsilon: float | Tensor,
    strength: float | Tensor,
    masked: Tensor | None,
    grad: Tensor,
    wanted: tuple[bool, bool, bool],
) -> Gradients:
    """As :meth:`fairseq_entmax.kernels.backends.Rows.gradients`."""
    grad = grad.resolve_neg().contiguous()
    probs = probs.contiguous()
    if masked is not None:
        masked = masked.expand(probs.shape).contiguous()
    for_scores = torch.empty_like(probs) if wanted[0] else None
    for_epsilon, for_strength = (
        probs.new_zeros((*probs.shape[:-1], 1)) if is_wanted else None for is_wanted in wanted[1:]
    )
    # The RowGradients struct of rows_f32.h
    rows = (probs, masked, grad, for_scores, for_epsilon, for_strength)
    _run("backward", probs, structure, (epsilon, strength), struct.pack("6P", *map(address, rows)))
    return for_scores, for_epsilon, for_strength


def _run(
    direction: str,
    scores: Tensor,
    structure: str,
    parameters: tuple[float | Tensor, float | Tensor],
    *places: int | bytes,
) -> None:
    """Call the library's function for a direction, whose first arguments are ``places``."""
    keys = scores.size(-1)
    number = scores.numel() // keys if keys else 0
    if not number:
        return
    # These tensors must live until the call is over
    epsilon, *of_epsilon = values_of_rows(parameters[0], scores)
    strength, *of_strength = values_of_rows(parameters[1], scores) if structure else (None, 0, 0)
    numbers = *of_epsilon, address(strength), *of_strength, NUMBERS[structure]
    of_rows = _OF_ROWS.pack(address(epsilon), *numbers)
    failed = getattr(library(), f"entmax_rows_{direction}")(
        *(*places, of_rows, number, keys),
        threads_for(scores.numel(), -(-number // lanes())),
    )
    check(failed)
