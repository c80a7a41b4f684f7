"""The loss of alpha-entmax of a target in torch's own operations, and its gradient.

A row is as long as a vocabulary, its support is not. The largest score of each part of a row is
the score of some key, and a threshold of some keys is below that of all: it says which keys can be
in the support at all. Where these are few in every row, they alone are solved for, and they alone
are kept for the backward pass, whose gradient is the one tensor of the size of the scores.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairseq_entmax.kernels import torch_ops
from fairseq_entmax.kernels.backends import LossParts

PARTS = 64
# The part of the keys that is worth being looked for
LARGEST_SHARE = 1 / 4
# How far a threshold may be above its own by rounding, in units of the scores and of their size
SAFE_DISTANCE, SAFE_SHARE = 1e-5, 1e-6


def takes(scores: Tensor) -> bool:
    """Whether the functions are for such scores: for all in float32 and float64."""
    return True


def losses(
    scores: Tensor, target: Tensor, epsilon: float, smoothing: float
) -> tuple[LossParts, tuple[Tensor, ...]]:
    """As :meth:`fairseq_entmax.kernels.backends.Losses.losses`."""
    top = scores.amax(-1, keepdim=True)
    top = torch.where(top == -math.inf, 0.0, top)
    at_target = target[..., None]
    distance = (scores.gather(-1, at_target) - top).squeeze(-1)
    if epsilon == 0.0:
        total = (scores - top).exp_().sum(-1, keepdim=True)
        # Of a row with every key masked
        log_total = torch.where(total == 0, 1.0, total).log_()
        saved: tuple[Tensor, ...] = (top, log_total)
        conjugate = log_total.squeeze(-1)
        target_prob = (distance - conjugate).exp()
        support = (scores > -math.inf).sum(-1).masked_fill_(conjugate.isnan(), 0)
    else:
        saved = _solve(scores, top, epsilon)
        probs, *places = saved
        candidates = scores.gather(-1, places[0]) if places else scores
        conjugate = _conjugate(probs, candidates - top, epsilon)
        is_target = places[0] == at_target if places else None
        found = probs.gather(-1, at_target) if is_target is None else probs * is_target
        target_prob = found.sum(-1)
        support = (probs > 0).sum(-1)
    loss = conjugate - _expected(scores, top, distance, smoothing)
    return LossParts(loss if smoothing else loss.clamp_(min=0), support, target_prob), saved


def gradients(
    scores: Tensor,
    target: Tensor,
    epsilon: float,
    smoothing: float,
    saved: tuple[Tensor, ...],
    grad: Tensor,
) -> Tensor:
    """As :meth:`fairseq_entmax.kernels.backends.Losses.gradients`."""
    if epsilon == 0.0:
        top, log_total = saved
        difference = (scores - top).sub_(log_total).exp_()
    elif len(saved) == 1:
        difference = saved[0].clone()
    else:
        probs, places = saved
        # 0, or NaN where the row is
        difference = (probs[..., :1] * 0.0).expand(scores.shape).contiguous()
        difference.scatter_(-1, places, probs)
    at_target = target[..., None]
    at_own = difference.gather(-1, at_target)
    if smoothing:
        own, other, is_masked = shares(scores, smoothing)
        difference.sub_(torch.where(is_masked, 0.0, other))
    else:
        own = torch.ones_like(at_own)
    return difference.scatter_(-1, at_target, at_own - own).mul_(grad[..., None])


def shares(scores: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """What label smoothing wants of each row: ``(…, 1)``, ``(…, 1)`` and ``(…, keys)``.

    Returns:
        The probability of the target, that of each other key, and which keys are masked.
    """
    is_masked = scores == -math.inf
    others = scores.size(-1) - 1 - is_masked.sum(-1, keepdim=True)
    other = smoothing / others.clamp(min=1).to(scores.dtype)
    other = torch.where(others > 0, other, 0.0)
    # Not between two numbers, which torch would take as float32
    return 1.0 - smoothing * (others > 0).to(other), other, is_masked


def _expected(scores: Tensor, top: Tensor, distance: Tensor, smoothing: float) -> Tensor:
    """``sum_i q_i (z_i - top)``; -inf where the target, at ``distance`` from the top, is masked."""
    if not smoothing:
        return distance
    own, other, is_masked = shares(scores, smoothing)
    total = torch.where(is_masked, 0.0, scores - top).sum(-1)
    others = torch.where(distance == -math.inf, 0.0, total - distance)
    return own.squeeze(-1) * distance + other.squeeze(-1) * others


def _solve(scores: Tensor, top: Tensor, epsilon: float) -> tuple[Tensor, ...]:
    """The probabilities, and of which keys they are where they are not of all."""
    keys = scores.size(-1)
    # One look: it waits for the device, for less than what it saves
    if keys >= 2 * PARTS and not (torch.compiler.is_compiling() or torch.jit.is_tracing()):
        parts = scores[..., : keys // PARTS * PARTS].unflatten(-1, (PARTS, -1)).amax(-1)
        largest = parts.amax(-1, keepdim=True)
        prob = torch_ops.probabilities(parts, epsilon).amax(-1, keepdim=True)
        # The threshold of the parts less 1 / epsilon
        least = largest - torch.exp(epsilon * torch.log(prob)).div_(epsilon)
        least -= SAFE_DISTANCE + SAFE_SHARE * top.abs()
        count = max(1, int((scores > least).sum(-1).amax())) if scores.numel() else keys
        if count <= LARGEST_SHARE * keys:
            found, places = scores.topk(count, sorted=False)
            return torch_ops.probabilities(found, epsilon), places
    return (torch_ops.probabilities(scores, epsilon),)


def _conjugate(probs: Tensor, distances: Tensor, epsilon: float) -> Tensor:
    """``sum_i p_i (z_i - top) + H(p)``, the conjugate of the negative entropy less the top."""
    is_in = probs > 0
    logs = torch.where(is_in, probs, 1.0).log_()
    terms = torch.expm1(logs.mul_(epsilon)).div_(-epsilon * (1.0 + epsilon))
    return terms.add_(torch.where(is_in, distances, 0.0)).mul_(probs).sum(-1)
