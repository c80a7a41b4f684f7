"""The mapping in Triton: on a GPU, or through Triton's interpreter on a CPU, for tests.

A program holds a tile of several short rows, or one long row, in registers: scores are read
once and probabilities written once, and Newton's iteration between them touches no memory. A
row too long for that is read again in each step.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from fairseq_entmax.kernels.backends import Gradients
from fairseq_entmax.kernels.inputs import values_of_rows
from fairseq_entmax.kernels.triton.math import kind_of
from fairseq_entmax.kernels.triton.rows_kernels import backward_kernel, forward_kernel

# The longest row that one program holds in registers, 16 numbers a thread
LONGEST_TILE = 8192
LEAST_TILE = 1024
NUMBERS_A_WARP = 512
# Neighbouring threads read at least so many neighbouring keys: a sector of 32 bytes
LEAST_LANES = 8


class Tile(NamedTuple):
    """What a program holds at a time (see the kernels), and its warps of 32 threads."""

    chunks: int
    rows: int
    lanes: int
    warps: int
    whole: bool


def tile_of(keys: int) -> Tile:
    """The tile for rows of ``keys`` keys."""
    block = max(16, triton.next_power_of_2(keys))
    whole = block <= LONGEST_TILE
    block = min(block, LONGEST_TILE)
    size = max(LEAST_TILE, block)
    rows, warps = size // block, max(1, size // NUMBERS_A_WARP)
    lanes = min(block, max(LEAST_LANES, 32 * warps // rows))
    return Tile(block // lanes, rows, lanes, warps, whole)


INTERPRETED = not isinstance(forward_kernel, triton.runtime.JITFunction)


def supports(scores: Tensor) -> bool:
    """Whether the kernels take such scores: dense ones on a CUDA device.

    In Triton's interpreter they may also be on a CPU.
    """
    return (
        scores.is_cuda or (INTERPRETED and scores.device.type == "cpu")
    ) and scores.layout == torch.strided


def probabilities(
    scores: Tensor, structure: str, epsilon: float | Tensor, strength: float | Tensor = 0.0
) -> Tensor:
    """As :meth:`fairseq_entmax.kernels.backends.Rows.probabilities`, in float32 for any dtype.

    The only structure with kernels is :data:`~fairseq_entmax.kernels.structure.PLAIN`.
    """
    scores = scores.contiguous()
    probs = torch.empty_like(scores, dtype=torch.float32)
    if scores.numel():
        _launch(forward_kernel, scores, epsilon, probs)
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
    # Hooks on saved tensors may return them with another memory layout
    probs, grad = probs.contiguous(), grad.contiguous()
    for_scores = torch.empty_like(probs) if wanted[0] else None
    for_epsilon = probs.new_zeros((*probs.shape[:-1], 1)) if wanted[1] else None
    if probs.numel() and any(wanted[:2]):
        requested = {"FOR_SCORES": wanted[0], "FOR_ALPHA": wanted[1]}
        _launch(backward_kernel, probs, epsilon, grad, for_scores, for_epsilon, **requested)
    return for_scores, for_epsilon, None


def _launch(
    kernel: Any, rows: Tensor, epsilon: float | Tensor, *others: Tensor | None, **wanted: bool
) -> None:
    """Run a kernel on all rows of a tensor, with ``others`` as further arguments."""
    keys = rows.size(-1)
    tile, number = tile_of(keys), rows.numel() // keys
    values, inner, entries = values_of_rows(epsilon, rows)
    with on_device(rows):
        kernel[(triton.cdiv(number, tile.rows),)](
            *(rows, values, *others, number, keys, inner, entries),
            KIND=kind_of(epsilon),
            WHOLE=tile.whole,
            CHUNKS=tile.chunks,
            ROWS=tile.rows,
            LANES=tile.lanes,
            num_warps=tile.warps,
            **wanted,
        )


def on_device(tensor: Tensor) -> contextlib.AbstractContextManager[Any]:
    """Make the tensor's device the current one, on which Triton launches its kernels."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else contextlib.nullcontext()
