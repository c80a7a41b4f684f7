"""The alpha-entmax loss in C, on rows of float32 on a CPU."""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from fairseq_entmax.kernels.backends import LossParts
from fairseq_entmax.kernels.native.library import address, check, library, threads_for
from fairseq_entmax.kernels.native.rows import supports

__all__ = ["gradients", "losses", "supports"]

# The Targets struct of losses.h, and how many numbers its LossRow has
_TARGETS = struct.Struct("4P2d2l")
NUMBERS_OF_ROW = 4


def losses(
    scores: Tensor, target: Tensor, epsilon: float, smoothing: float
) -> tuple[LossParts, tuple[Tensor, ...]]:
    """As :meth:`fairseq_entmax.kernels.backends.Losses.losses`."""
    scores, target = scores.contiguous(), target.contiguous()
    loss, target_prob = (scores.new_empty(target.shape) for _ in range(2))
    support = torch.empty_like(target)
    saved = target_prob, scores.new_empty((*target.shape, NUMBERS_OF_ROW))
    _run("forward", (epsilon, smoothing), scores, target, *saved, loss, support)
    return LossParts(loss, support, target_prob), saved


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
    grad_scores = torch.empty_like(scores)
    # Hooks on saved tensors may return them with another memory layout
    *numbers, grad = (one.resolve_neg().contiguous() for one in (*saved, grad))
    _run("backward", (epsilon, smoothing), scores, target, *numbers, grad, grad_scores)
    return grad_scores


def _run(direction: str, parameters: tuple[float, float], *tensors: Tensor) -> None:
    """Call the library's function for a direction; the first four tensors are those of Targets."""
    scores, target = tensors[:2]
    rows, keys = target.numel(), scores.size(-1)
    if rows:
        places = [address(tensor) for tensor in tensors]
        targets = _TARGETS.pack(*places[:4], *parameters, rows, keys)
        run = getattr(library(), f"entmax_loss_{direction}")
        check(run(targets, *places[4:], threads_for(scores.numel(), rows)))
