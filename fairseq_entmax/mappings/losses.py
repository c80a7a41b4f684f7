"""The Fenchel-Young loss of alpha-entmax.

Source: Blondel, Martins and Niculae 2020, *Learning with Fenchel-Young Losses*, section 4; for
alpha-entmax Peters, Niculae and Martins 2019, *Sparse Sequence-to-Sequence Models*, section 3.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def fenchel_young_loss(
    scores: Tensor, probs: Tensor, target: Tensor, alpha: float | Tensor
) -> Tensor:
    """How far alpha-entmax of some scores is from other probabilities: 0 where they are equal.

        L = (p - q) z + H(p) - H(q),    with the gradient p - q of the scores z

    H is Tsallis' alpha-entropy, (1 - sum p^alpha) / (alpha (alpha - 1)), and Shannon's at alpha =
    1, where the loss is the Kullback-Leibler divergence of q from p. A key outside the support
    of p, which the gradient of the mapping itself never reaches, has a gradient here.

    Args:
        scores: ``(…, keys)``; -inf at keys that are masked, where both probabilities are 0.
        probs: the same shape, p, alpha-entmax of the scores.
        target: the same shape, q, probabilities.
        alpha: from 1 to 2, a number or a tensor that broadcasts to ``(…,)``. It gets no
            gradient: losses of different alpha are not to be compared.

    Returns:
        ``(…,)``, 0 or more, with gradients of ``scores`` alone.
    """
    loss: Tensor = _FenchelYoung.apply(scores, probs.detach(), target, alpha)
    return loss


class _FenchelYoung(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, probs: Tensor, target: Tensor, alpha: float | Tensor
    ) -> Tensor:
        difference = probs - target
        ctx.save_for_backward(difference)
        finite = scores.masked_fill(difference == 0, 0.0)
        linear = (difference * finite).sum(-1)
        return (linear + _entropy(probs, alpha) - _entropy(target, alpha)).clamp(min=0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        (difference,) = ctx.saved_tensors
        return grad[..., None] * difference, None, None, None


def _entropy(probs: Tensor, alpha: float | Tensor) -> Tensor:
    """Tsallis' alpha-entropy of the last dimension, from differences that keep their digits."""
    logs = torch.where(probs > 0, probs, 1.0).log()
    power = torch.as_tensor(alpha, dtype=probs.dtype, device=probs.device)[..., None] - 1
    safe = torch.where(power == 0, 1.0, power)
    # p - p^alpha, and its limit p log p
    terms = torch.where(power == 0, -logs, -torch.expm1(safe * logs) / (safe * (1 + safe)))
    return (probs * terms).sum(-1)
