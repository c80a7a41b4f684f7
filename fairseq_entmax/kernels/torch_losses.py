"""The alpha-entmax loss of a target in torch's own operations, and its gradient.

A row is as long as the vocabulary, but its support is short. The largest score of each part of a
row belongs to some key. The threshold of these keys alone is not above that of all keys, so it
tells which keys can be in the support. If they are few in every row, only they are solved for, in
float64, and only they are kept for the backward pass, whose gradient is then the only tensor as
large as the scores. At alpha = 1 torch's log-softmax does the work.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairseq_entmax.kernels import torch_ops
from fairseq_entmax.kernels.backends import LossParts

PARTS = 64
# The largest share of the keys that is worth selecting
LARGEST_SHARE = 1 / 4
# On a CPU, so many booleans are counted at a time
NUMBERS_COUNTED = 2**18
# How far rounding may raise a threshold, in units of the scores, and relative to their size
SAFE_DISTANCE, SAFE_SHARE = 1e-5, 1e-6


def losses(
    scores: Tensor, target: Tensor, epsilon: float, smoothing: float
) -> tuple[LossParts, tuple[Tensor, ...]]:
    """As :meth:`fairseq_entmax.kernels.backends.Losses.losses`."""
    if scores.numel() == 0:
        nothing = scores.new_zeros(target.shape)
        return LossParts(nothing, torch.zeros_like(target), nothing.clone()), ()
    if epsilon == 0.0:
        return _softmax_losses(scores, target, smoothing)
    top = scores.amax(-1, keepdim=True)
    top = torch.where(top == -math.inf, 0.0, top)
    at_target = target[..., None]
    probs, places = _solve(scores, top, epsilon)
    if places is None:
        conjugate = _conjugate(probs, scores - top, epsilon)
        target_prob = probs.gather(-1, at_target).squeeze(-1)
    else:
        found = scores.gather(-1, places).to(probs.dtype)
        conjugate = _conjugate(probs, found - top, epsilon)
        target_prob = (probs * (places == at_target)).sum(-1)
    distance = (scores.gather(-1, at_target).to(probs.dtype) - top).squeeze(-1)
    loss = conjugate - _expected(scores, top, distance, smoothing)
    loss = loss if smoothing else loss.clamp_(min=0)
    support, dtype = _count(probs > 0), scores.dtype
    saved = (probs.to(dtype),) if places is None else (probs.to(dtype), places)
    return LossParts(loss.to(dtype), support, target_prob.to(dtype)), saved


def gradients(
    scores: Tensor,
    target: Tensor,
    epsilon: float,
    smoothing: float,
    saved: tuple[Tensor, ...],
    grad: Tensor,
) -> Tensor:
    """As :meth:`fairseq_entmax.kernels.backends.Losses.gradients`."""
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    if epsilon == 0.0:
        log_probs, is_without = saved
        difference = log_probs.exp()
        if _may_hold(is_without):
            difference.masked_fill_(is_without[..., None], 0.0)
    elif len(saved) == 1:
        difference = saved[0].clone()
    else:
        probs, places = saved
        # 0, or NaN if the row is
        difference = (probs[..., :1] * 0.0).expand(scores.shape).contiguous()
        difference.scatter_(-1, places, probs)
    at_target = target[..., None]
    prob = difference.gather(-1, at_target)
    share: float | Tensor = 1.0
    if smoothing:
        share, other, is_masked = shares(scores, smoothing)
        difference.sub_(torch.where(is_masked, 0.0, other) if _may_hold(is_masked) else other)
    return difference.scatter_(-1, at_target, prob - share).mul_(grad[..., None])


def shares(scores: Tensor, smoothing: float) -> tuple[Tensor, Tensor, Tensor]:
    """The smoothed probabilities of the target and of each other key, and which keys are masked."""
    is_masked = scores == -math.inf
    others = scores.size(-1) - 1 - _count(is_masked)[..., None]
    other = smoothing / others.clamp(min=1).to(scores.dtype)
    other = torch.where(others > 0, other, 0.0)
    # Not torch.where of two numbers, which would be float32
    return 1.0 - smoothing * (others > 0).to(other), other, is_masked


def _may_hold(condition: Tensor) -> bool:
    """Whether a condition may hold anywhere. Always true on a device that would be waited for."""
    return condition.device.type != "cpu" or bool(condition.any())


def _count(condition: Tensor) -> Tensor:
    """The number of keys in each row at which a condition holds: ``(…)``, int64."""
    if condition.device.type != "cpu" or condition.numel() <= NUMBERS_COUNTED:
        return condition.sum(-1)
    # On a CPU torch turns each boolean into an int64 before it sums them
    keys = condition.size(-1)
    parts = condition.reshape(-1, keys).split(max(1, NUMBERS_COUNTED // keys))
    return torch.cat([part.sum(-1) for part in parts]).view(condition.shape[:-1])


def _softmax_losses(
    scores: Tensor, target: Tensor, smoothing: float
) -> tuple[LossParts, tuple[Tensor, ...]]:
    """The losses at alpha = 1. Saved: the log-probabilities, and which rows have no key."""
    log_probs = torch.log_softmax(scores, -1)
    is_without = scores.amax(-1) == -math.inf
    at_target = log_probs.gather(-1, target[..., None]).squeeze(-1)
    at_target = at_target.masked_fill(is_without, -math.inf)
    expected = at_target
    seen = scores.size(-1) - _count(scores == -math.inf)
    if smoothing:
        total = log_probs.sum(-1)
        if _may_hold(total == -math.inf):
            total = log_probs.masked_fill(log_probs == -math.inf, 0.0).sum(-1)
        others = torch.where(at_target == -math.inf, 0.0, total - at_target)
        share = torch.where(seen > 1, smoothing / (seen - 1).clamp(min=1).to(scores.dtype), 0.0)
        expected = (1.0 - smoothing * (seen > 1).to(share)) * at_target + share * others
    support = seen.masked_fill(at_target.isnan(), 0)
    return LossParts(-expected, support, at_target.exp()), (log_probs, is_without)


def _expected(scores: Tensor, top: Tensor, distance: Tensor, smoothing: float) -> Tensor:
    """``sum_i q_i (z_i - top)``; -inf if the target, at ``distance`` from the top, is masked."""
    if not smoothing:
        return distance
    share, other, is_masked = shares(scores, smoothing)
    total = torch.where(is_masked, 0.0, scores - top).sum(-1)
    others = torch.where(distance == -math.inf, 0.0, total - distance)
    return share.squeeze(-1) * distance + other.squeeze(-1) * others


def _solve(scores: Tensor, top: Tensor, epsilon: float) -> tuple[Tensor, Tensor | None]:
    """The probabilities; and the keys they belong to, or None if these are all keys."""
    keys, precise = scores.size(-1), torch.float64
    if scores.device.type not in ("cpu", "cuda"):
        precise = scores.dtype
    if keys < 2 * PARTS:
        return torch_ops.probabilities(scores.to(precise), epsilon), None
    # Only `count` is read back: waiting for the device costs less than this saves
    parts = scores[..., : keys // PARTS * PARTS].unflatten(-1, (PARTS, -1)).amax(-1)
    prob = torch_ops.probabilities(parts, epsilon).amax(-1, keepdim=True)
    # The threshold of the parts less 1 / epsilon
    least = parts.amax(-1, keepdim=True) - torch.exp(epsilon * torch.log(prob)).div_(epsilon)
    least -= SAFE_DISTANCE + SAFE_SHARE * top.abs()
    count = max(1, int(_count(scores > least).amax()))
    if count <= LARGEST_SHARE * keys:
        found, places = scores.topk(count, sorted=False)
        return torch_ops.probabilities(found.to(precise), epsilon), places
    return torch_ops.probabilities(scores, epsilon), None


def _conjugate(probs: Tensor, distances: Tensor, epsilon: float) -> Tensor:
    """``sum_i p_i (z_i - top) + H(p)``, the conjugate of the negative entropy, less the top."""
    is_in = probs > 0
    logs = torch.where(is_in, probs, 1.0).log_()
    terms = torch.expm1(logs.mul_(epsilon)).div_(-epsilon * (1.0 + epsilon))
    return terms.add_(torch.where(is_in, distances, 0.0)).mul_(probs).sum(-1)
