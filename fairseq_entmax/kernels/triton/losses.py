"""The loss of alpha-entmax of a target in Triton: on a GPU, or in Triton's interpreter, for tests.

A program holds a block of one long row, or several short rows. It passes over the scores to find
the largest, in each step of Newton's iteration, of which there are one or two, and once for the
sums; nothing of their size is written but the gradient. No value is waited for.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from fairseq_entmax.kernels.backends import LossParts
from fairseq_entmax.kernels.triton import rows as plain_rows
from fairseq_entmax.kernels.triton.losses_kernels import SUMS, gradient_kernel, sums_kernel
from fairseq_entmax.kernels.triton.math import LEAST_EPSILON, kind_of
from fairseq_entmax.kernels.triton.rows import INTERPRETED, on_device, tile_of

__all__ = ["INTERPRETED", "gradients", "losses", "takes"]


def takes(scores: Tensor) -> bool:
    """Whether the kernels are for such scores: float32 on a CUDA device.

    In Triton's interpreter, on a CPU too.
    """
    return plain_rows.takes(scores) and scores.dtype == torch.float32


def losses(
    scores: Tensor, target: Tensor, epsilon: float, smoothing: float
) -> tuple[LossParts, tuple[Tensor, ...]]:
    """As :meth:`fairseq_entmax.kernels.backends.Losses.losses`."""
    scores, epsilon = scores.contiguous(), max(epsilon, LEAST_EPSILON.value)
    sums = scores.new_zeros((*target.shape, SUMS.value))
    if target.numel():
        _launch(sums_kernel, scores, epsilon, sums)
    # Numbers of rows, in float64: what is small in a loss is a difference
    top, at, total, slope, lack, support, seen, distances = sums.double().unbind(-1)
    is_without = top == -torch.inf
    total, slope = (part.masked_fill(is_without, 1.0) for part in (total, slope))
    scale = -torch.expm1(-epsilon * torch.log(total))
    tau = at + scale * total / slope
    entropy = (lack + scale * (total - lack)) / (total * epsilon * (1 + epsilon))
    conjugate = (at - lack / total) / epsilon + entropy
    distance = scores.gather(-1, target[..., None]).squeeze(-1).double() - top
    distance = distance.masked_fill(is_without, -torch.inf)
    target_prob = _power(epsilon * distance - tau, epsilon)
    expected, own, other = distance, torch.ones_like(distance), torch.zeros_like(distance)
    if smoothing:
        has_others = seen > 1
        other = has_others * smoothing / (seen - 1).clamp(min=1)
        own = 1.0 - has_others * smoothing
        rest = torch.where(distance == -torch.inf, 0.0, distances - distance)
        expected = own * distance + other * rest
    loss = conjugate - expected
    parts = LossParts(
        (loss if smoothing else loss.clamp(min=0)).float(),
        support.masked_fill(top.isnan(), 0).long(),
        target_prob.float(),
    )
    top = top.masked_fill(is_without, 0.0)
    of_rows = (top, tau, 1.0 - tau, other, target_prob - own)
    return parts, (torch.stack(of_rows, -1).float(),)


def gradients(
    scores: Tensor,
    target: Tensor,
    epsilon: float,
    smoothing: float,
    saved: tuple[Tensor, ...],
    grad: Tensor,
) -> Tensor:
    """As :meth:`fairseq_entmax.kernels.backends.Losses.gradients`."""
    scores, epsilon = scores.contiguous(), max(epsilon, LEAST_EPSILON.value)
    grad_scores = torch.empty_like(scores)
    if target.numel():
        others = (target.contiguous(), saved[0], grad.contiguous(), grad_scores)
        _launch(gradient_kernel, scores, epsilon, *others)
    return grad_scores


def _power(base: Tensor, epsilon: float) -> Tensor:
    """``[1 + base]_+ ** (1 / epsilon)``, of numbers of rows."""
    outside = base <= -1.0
    return torch.exp(torch.log1p(base) / epsilon).masked_fill(outside, 0.0)


def _launch(kernel: Any, scores: Tensor, epsilon: float, *others: Tensor) -> None:
    """Run a kernel, which takes ``others`` too, on all rows of a tensor."""
    keys = scores.size(-1)
    tile, number = tile_of(keys), scores.numel() // keys
    with on_device(scores):
        kernel[(triton.cdiv(number, tile.rows),)](
            *(scores, *others, number, keys, epsilon),
            KIND=kind_of(epsilon),
            CHUNKS=tile.chunks,
            ROWS=tile.rows,
            LANES=tile.lanes,
            num_warps=tile.warps,
        )
