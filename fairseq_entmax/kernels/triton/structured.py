"""Mappings with structure in Triton: on a GPU, or through Triton's interpreter on a CPU, for tests.

Each row is held in registers as a whole, and probabilities are all that is kept of it for its
gradients. Total variation is computed by scans along the keys, which Triton lets a warp do
together; the sort that OSCAR needs is left to torch.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from fairseq_entmax.kernels.inputs import epsilon_of_rows
from fairseq_entmax.kernels.structure import PNORM, TV
from fairseq_entmax.kernels.triton import rows as plain_rows
from fairseq_entmax.kernels.triton.math import kind_of
from fairseq_entmax.kernels.triton.pnorm_kernels import pnorm_backward_kernel, pnorm_forward_kernel
from fairseq_entmax.kernels.triton.rows import INTERPRETED, Tile, on_device, tile_of
from fairseq_entmax.kernels.triton.tv_kernels import tv_backward_kernel, tv_forward_kernel

__all__ = ["INTERPRETED", "gradients", "probabilities", "takes"]

# The longest row: a scan holds several numbers of each key in registers
LONGEST_ROW = 4096
# The longest row that a thread holds by itself, and the releases of Triton that deal it a tile so
LONGEST_OF_A_THREAD = 32
THREADS_HAVE_ROWS = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 7)
# Longer rows are scanned by a warp without shared memory, as long as each has one for itself
LEAST_TILE = 256
NUMBERS_A_WARP = 512


def tv_tile_of(keys: int, number: int) -> Tile:
    """The tile of total variation for ``number`` rows of ``keys`` keys."""
    block = max(16, triton.next_power_of_2(keys))
    if block <= LONGEST_OF_A_THREAD and THREADS_HAVE_ROWS:
        # The interpreter scans key by key, also where there is no row
        rows = min(32, triton.next_power_of_2(number)) if INTERPRETED else 32
        return Tile(block, rows, 1, 1, True)
    return Tile(1, max(1, LEAST_TILE // block), block, max(1, block // NUMBERS_A_WARP), True)


def takes(scores: Tensor, kind: str) -> bool:
    """Whether the kernels are for this kind on such scores: float32 rows on a CUDA device.

    Rows have at most :data:`LONGEST_ROW` keys. In Triton's interpreter, on a CPU too.
    """
    return (
        kind in (TV, PNORM)
        and plain_rows.takes(scores)
        and scores.dtype == torch.float32
        and scores.dim() > 0
        and scores.size(-1) <= LONGEST_ROW
    )


def probabilities(
    scores: Tensor, kind: str, epsilon: float | Tensor, strength: float | Tensor
) -> Tensor:
    """As :meth:`fairseq_entmax.kernels.backends.StructuredRows.probabilities`."""
    scores = scores.contiguous()
    probs = torch.empty_like(scores)
    if scores.numel():
        kernel = tv_forward_kernel if kind == TV else pnorm_forward_kernel
        _launch(kernel, kind, scores, epsilon, strength, probs)
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
    for_scores, for_epsilon, for_strength = wanted
    probs, grad = probs.contiguous(), grad.contiguous()
    of_rows = (*probs.shape[:-1], 1)
    grads = (
        torch.empty_like(probs) if for_scores else None,
        probs.new_zeros(of_rows) if for_epsilon else None,
        probs.new_zeros(of_rows) if for_strength else None,
    )
    if not probs.numel() or not any(wanted):
        return grads
    flags = {"FOR_SCORES": for_scores, "FOR_EPSILON": for_epsilon, "FOR_STRENGTH": for_strength}
    if kind == TV:
        bits = None
        if masked is not None and for_strength:
            bits = masked.expand_as(probs).contiguous().view(torch.uint8)
        flags["HAS_MASK"] = bits is not None
        _launch(tv_backward_kernel, kind, probs, epsilon, strength, bits, grad, *grads, **flags)
    else:
        _launch(pnorm_backward_kernel, kind, probs, epsilon, strength, grad, *grads, **flags)
    return grads


def _launch(
    kernel: Any,
    kind: str,
    rows: Tensor,
    epsilon: float | Tensor,
    strength: float | Tensor,
    *others: Tensor | None,
    **flags: bool,
) -> None:
    """Run a kernel, which takes ``others`` too, on all rows of a tensor."""
    keys = rows.size(-1)
    number = rows.numel() // keys
    epsilons, inner, entries = epsilon_of_rows(epsilon, rows, torch.float32)
    strengths, strength_inner, strength_entries = epsilon_of_rows(strength, rows, torch.float32)
    sizes = [number, keys, inner, entries, strength_inner, strength_entries]
    if kind == TV:
        tile = tv_tile_of(keys, number)
        sizes.append(1)
    else:
        tile = tile_of(keys)
    with on_device(rows):
        kernel[(triton.cdiv(number, tile.rows),)](
            *(rows, epsilons, strengths, *others, *sizes),
            KIND=kind_of(epsilon),
            CHUNKS=tile.chunks,
            ROWS=tile.rows,
            LANES=tile.lanes,
            num_warps=tile.warps,
            **flags,
        )
