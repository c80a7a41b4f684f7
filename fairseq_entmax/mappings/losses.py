"""The Fenchel-Young loss of alpha-entmax, for one target key or for target probabilities.

Source: Blondel, Martins and Niculae 2020, *Learning with Fenchel-Young Losses*, section 4; for
alpha-entmax Peters, Niculae and Martins 2019, *Sparse Sequence-to-Sequence Models*, section 3.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_entmax import kernels
from fairseq_entmax.kernels import torch_losses
from fairseq_entmax.kernels.backends import LossParts
from fairseq_entmax.kernels.structure import PLAIN
from fairseq_entmax.kernels.tracing import outside_graphs
from fairseq_entmax.mappings.functional import (
    check_alpha,
    check_dim,
    in_full_precision,
    map_structured,
)


def entmax_loss(scores: Tensor, target: Tensor, alpha: float = 1.5) -> Tensor:
    """The alpha-entmax loss of each row: cross-entropy where alpha is 1.

        L = (p - q) z + H(p),    with the gradient p - q of the scores z

    p is alpha-entmax of the scores, q is 1 at the target and 0 elsewhere, H is Tsallis'
    alpha-entropy. Above alpha = 1 the loss is 0 if the target's score is above all others by
    1 / (alpha - 1), and keys outside the support, except the target, have no gradient.

    Args:
        scores: ``(…, keys)``, floating point; -inf masks a key. float16 and bfloat16 are computed
            in float32.
        target: ``(…)``, int64, from 0 to keys - 1. On a GPU, others stop the program.
        alpha: a number from 1 to 2. It has no gradient: losses of different alpha cannot be
            compared.

    Returns:
        ``(…)``, in float32, or float64 if the scores are; 0 or more. A masked target costs
        +inf. A row with NaN or +inf among its scores is NaN, and so is its gradient. Differentiable
        in the scores.

    Raises:
        ValueError: ``scores`` is not floating point, ``target`` is not int64, of another shape or
            device, or out of range; ``alpha`` is out of range.

    Source:
        Peters, Niculae and Martins 2019, *Sparse Sequence-to-Sequence Models*, section 3.
    """
    return entmax_loss_parts(scores, target, alpha).loss


def sparsemax_loss(scores: Tensor, target: Tensor) -> Tensor:
    """The sparsemax loss (Martins and Astudillo 2016): :func:`entmax_loss` with alpha = 2."""
    return entmax_loss(scores, target, 2.0)


def entmax15_loss(scores: Tensor, target: Tensor) -> Tensor:
    """The 1.5-entmax loss (Peters et al. 2019): :func:`entmax_loss` with alpha = 1.5."""
    return entmax_loss(scores, target, 1.5)


def entmax_loss_parts(
    scores: Tensor, target: Tensor, alpha: float = 1.5, label_smoothing: float = 0.0
) -> LossParts:
    """:func:`entmax_loss` with label smoothing, and what a criterion reports with it.

    With smoothing, q is 1 - label_smoothing at the target and label_smoothing / (V - 1) at each
    other of the V keys that are not masked (Peters and Martins 2021, *Smoothing and Shrinking the
    Sparse Seq2Seq Search Space*). The loss is then (p - q) z + H(p): the Fenchel-Young loss
    without H(q), which does not depend on the scores. At alpha = 1 it is fairseq's label-smoothed
    cross-entropy.

    Args:
        scores, target, alpha: as for :func:`entmax_loss`.
        label_smoothing: from 0 to below 1.

    Raises:
        ValueError: as for :func:`entmax_loss`, or ``label_smoothing`` is out of range.
    """
    check_dim(scores, -1)
    alpha = check_alpha(alpha)
    if not 0.0 <= label_smoothing < 1.0:
        raise ValueError(f"label_smoothing must be from 0 to below 1, not {label_smoothing}")
    _check_target(scores, target)
    return _losses(in_full_precision(scores), target, alpha, label_smoothing)


def _check_target(scores: Tensor, target: Tensor) -> None:
    if not isinstance(target, Tensor) or target.dtype != torch.int64:
        found = target.dtype if isinstance(target, Tensor) else type(target).__name__
        raise ValueError(f"target must be a tensor of torch.int64, not {found}")
    if target.shape != scores.shape[:-1]:
        raise ValueError(
            f"target must have the shape {tuple(scores.shape[:-1])}, that of the scores without "
            f"the last dimension, not {tuple(target.shape)}"
        )
    if target.device != scores.device:
        raise ValueError(f"target must be on {scores.device}, like the scores, not {target.device}")
    # Kernels index memory by the target. On other devices, reading its values would have to wait
    if target.device.type == "cpu" and target.numel() > 0:
        for index in torch.aminmax(target):
            if not 0 <= index.item() < scores.size(-1):
                raise ValueError(
                    f"target must be from 0 to {scores.size(-1) - 1}, one of the "
                    f"{scores.size(-1)} keys, not {index.item()}"
                )


@outside_graphs
def _losses(scores: Tensor, target: Tensor, alpha: float, smoothing: float) -> LossParts:
    return LossParts(*_EntmaxLoss.apply(scores, target, alpha - 1.0, smoothing))


class _EntmaxLoss(torch.autograd.Function):
    """The loss of scores in float32 or float64, keys last."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, target: Tensor, epsilon: float, smoothing: float
    ) -> tuple[Tensor, ...]:
        ctx.backend = kernels.losses_for(scores, epsilon)
        parts, saved = ctx.backend.losses(scores, target, epsilon, smoothing)
        ctx.save_for_backward(scores, target, *saved)
        ctx.numbers = epsilon, smoothing
        ctx.mark_non_differentiable(parts.support, parts.target_prob)
        return tuple(parts)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        scores, target, *saved = ctx.saved_tensors
        epsilon, smoothing = ctx.numbers
        if torch.is_grad_enabled():
            at_target, other, is_masked = torch_losses.shares(scores.detach(), smoothing)
            wanted = torch.where(is_masked, 0.0, other).scatter(-1, target[..., None], at_target)
            found = grad[..., None] * (map_structured(scores, PLAIN, epsilon, 0.0) - wanted)
        else:
            found = ctx.backend.gradients(scores, target, epsilon, smoothing, tuple(saved), grad)
        return found, None, None, None


def fenchel_young_loss(
    scores: Tensor, probs: Tensor, target: Tensor, alpha: float | Tensor
) -> Tensor:
    """How far alpha-entmax of some scores is from target probabilities: 0 if they are equal.

        L = (p - q) z + H(p) - H(q),    with the gradient p - q of the scores z

    H is Tsallis' alpha-entropy, (1 - sum p^alpha) / (alpha (alpha - 1)), and Shannon's at alpha =
    1, where the loss is the Kullback-Leibler divergence of q from p. A key outside the support
    of p, which the gradient of the mapping itself never reaches, has a gradient here.

    ``probs`` is p and ``target`` q, both shaped like the scores; ``alpha`` broadcasts to ``(…,)``.

    Returns:
        ``(…,)``, 0 or more, with a gradient for ``scores`` only.
    """
    probs, target = probs.detach(), target.detach()
    alpha = alpha.detach() if isinstance(alpha, Tensor) else alpha
    difference = probs - target
    linear = (difference * scores.masked_fill(difference == 0, 0.0)).sum(-1)
    loss = linear + _entropy(probs, alpha) - _entropy(target, alpha)
    # Not clamp: where rounding makes a small loss negative, it would cut the gradient off
    return loss - loss.detach().clamp(max=0)


def _entropy(probs: Tensor, alpha: float | Tensor) -> Tensor:
    """Tsallis' alpha-entropy along the last dimension, from differences that keep their digits."""
    logs = torch.where(probs > 0, probs, 1.0).log()
    power = torch.as_tensor(alpha, dtype=probs.dtype, device=probs.device)[..., None] - 1
    safe = torch.where(power == 0, 1.0, power)
    # (p - p^alpha) / (alpha (alpha - 1)) over p, and its limit at alpha = 1, -log p
    terms = torch.where(power == 0, -logs, -torch.expm1(safe * logs) / (safe * (1 + safe)))
    return (probs * terms).sum(-1)
