"""The loss of alpha-entmax in C, on rows of float32 on a CPU."""

from __future__ import annotations

import torch
from torch import Tensor

from fairseq_entmax.kernels.backends import LossParts
from fairseq_entmax.kernels.native.library import address, check, library, threads_for
from fairseq_entmax.kernels.native.rows import supports

__all__ = ["gradients", "losses", "supports"]

# Numbers that the backward pass needs of each row: LossRow of losses.h
NUMBERS_OF_ROW = 4


def losses(
    scores: Tensor, target: Tensor, epsilon: float, smoothing: float
) -> tuple[LossParts, tuple[Tensor, ...]]:
    """As :meth:`fairseq_entmax.kernels.backends.Losses.losses`."""
    scores, target = scores.contiguous(), target.contiguous()
    loss, target_prob = (scores.new_empty(target.shape) for _ in range(2))
    support = torch.empty_like(target)
    of_rows = scores.new_empty((*target.shape, NUMBERS_OF_ROW))
    if target.numel():
        failed = library().entmax_loss_forward(
            *(address(scores), address(target), epsilon, smoothing),
            *(address(loss), address(support), address(target_prob), address(of_rows)),
            *_sizes(scores),
        )
        check(failed)
    return LossParts(loss, support, target_prob), (target_prob, of_rows)


def gradients(
    scores: Tensor,
    target: Tensor,
    epsilon: float,
    smoothing: float,
    saved: tuple[Tensor, ...],
    grad: Tensor,
) -> Tensor:
    """As :meth:`fairseq_entmax.kernels.backends.Losses.gradients`."""
    scores, target = scores.contiguous(), target.contiguous()
    grad = grad.resolve_neg().contiguous()
    target_prob, of_rows = saved
    grad_scores = torch.empty_like(scores)
    if target.numel():
        library().entmax_loss_backward(
            *(address(scores), address(target), epsilon, smoothing),
            *(address(target_prob), address(of_rows), address(grad), address(grad_scores)),
            *_sizes(scores),
        )
    return grad_scores


def _sizes(scores: Tensor) -> tuple[int, int, int]:
    """Rows, keys and threads."""
    keys = scores.size(-1)
    rows = scores.numel() // keys
    return rows, keys, threads_for(scores.numel(), rows)
