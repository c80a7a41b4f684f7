"""sq-pnorm-max in torch's own operations: its threshold, and its gradients."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.kernels.structure import like_rows
from fairseq_entmax.kernels.torch_ops import TOLERANCE

# Below this, the result is uniform over the largest scores in any case
SMALLEST_EPSILON = 1e-7
# Newton's method was seen to take ten steps at most; halving the interval takes up to so many
MOST_STEPS = 60


def probabilities(distances: Tensor, epsilon: float | Tensor, gamma: float | Tensor) -> Tensor:
    """sq-pnorm-max of rows whose largest score is 0; ``-inf`` at masked keys.

    The threshold lies ``s`` below the largest score. With ``v_i = [1 + z_i / s]_+`` and
    ``r = 1 / epsilon``, ``s`` solves ``s A ** ((1 - r) / (1 + r)) B = gamma``, where
    ``A = sum v ** (r + 1)`` and ``B = sum v ** r``: the left side grows with s, and s lies in
    ``[gamma n ** (-2 / q), gamma]``. Newton's method is kept inside the known bounds of s.
    """
    level = like_rows(gamma, distances)
    epsilon = like_rows(epsilon, distances).clamp(min=SMALLEST_EPSILON)
    power = 1.0 / epsilon
    count = (distances > -math.inf).sum(-1, keepdim=True).clamp(min=1).to(distances.dtype)
    low = level * count ** (-2.0 * power / (1.0 + power))
    high = level.expand_as(low).clone()
    scale = high.clone()
    may_look = distances.device.type == "cpu"
    tolerance = TOLERANCE[distances.dtype]
    for _ in range(MOST_STEPS):
        parts = _parts(distances / scale, power)
        excess = (scale * parts.norm * parts.sum - level) / level
        is_far = excess.abs() > tolerance
        if may_look and not is_far.any():
            break
        high, low = torch.where(excess > 0, scale, high), torch.where(excess < 0, scale, low)
        ratio = parts.sum * parts.sum / parts.sum_above
        slope = parts.norm * ((1.0 - power) * ratio + power * parts.sum_below)
        moved = scale - excess * level / slope
        inside = (moved > low) & (moved < high)
        # Rounding would move a solved row out of its bounds, and so back to their middle
        scale = torch.where(is_far, torch.where(inside, moved, (low + high) / 2), scale)
    return parts.powers / parts.sum


class _Parts(NamedTuple):
    """``v ** r``, and the sums B, A, C over the support of v to the powers r, r + 1, r - 1.

    ``norm`` is ``A ** ((1 - r) / (1 + r))``.
    """

    powers: Tensor
    sum: Tensor
    sum_above: Tensor
    sum_below: Tensor
    norm: Tensor


def _parts(relative: Tensor, power: Tensor) -> _Parts:
    """The parts for ``v = 1 + relative``."""
    inside = relative > -1.0
    logs = torch.log1p(torch.where(inside, relative, 0.0))
    powers = (power * logs).exp() * inside
    below = ((power - 1.0) * logs).exp() * inside
    above = (powers * logs.exp()).sum(-1, keepdim=True)
    norm = above ** ((1.0 - power) / (1.0 + power))
    return _Parts(powers, powers.sum(-1, keepdim=True), above, below.sum(-1, keepdim=True), norm)


def gradients(
    probs: Tensor,
    epsilon: float | Tensor,
    gamma: float | Tensor,
    grad: Tensor,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of sq-pnorm-max by its implicit equation, in operations that autograd can follow.

    All is written in ``v``, which the probabilities determine up to a scale that drops out.
    """
    inside = probs > 0
    # Rows of length 0 have no maximum
    top = probs.detach().amax(-1, keepdim=True) if probs.numel() else probs.detach().sum(-1, True)
    # In rows with every key masked all gradients are 0, whatever the parameters are
    empty = top == 0
    level = torch.where(empty, 1.0, like_rows(gamma, probs))
    epsilon = torch.where(empty, 1.0, like_rows(epsilon, probs)).clamp(min=SMALLEST_EPSILON)
    power = 1.0 / epsilon
    logs = (torch.where(inside, probs, 1.0) / torch.where(inside, top, 1.0)).log()
    base = logs.exp() * inside  # v ** r
    values = (epsilon * logs).exp() * inside
    below = ((1.0 - epsilon) * logs).exp() * inside  # v ** (r - 1)
    b, c = base.sum(-1, keepdim=True), below.sum(-1, keepdim=True)
    a = (base * values).sum(-1, keepdim=True)
    a, b, c = (total.masked_fill(empty, 1.0) for total in (a, b, c))
    norm = a ** ((1.0 - power) / (1.0 + power))
    for_scores = for_epsilon = for_gamma = None
    if wanted[0] or wanted[2]:
        bend = (1.0 - power) / a * base
        moved = power * below * grad + bend * (base * grad).sum(-1, keepdim=True)
        ones = power * below + bend * b
        mean = moved.sum(-1, keepdim=True) / ones.sum(-1, keepdim=True).masked_fill(empty, 1.0)
        for_scores = (moved - mean * ones) * norm / level
        for_gamma = -(for_scores * values).sum(-1, keepdim=True) / (norm * b)
    if wanted[1]:
        steps = epsilon * logs  # log v
        log_a = (base * values * steps).sum(-1, keepdim=True) / a
        log_b = (base * steps).sum(-1, keepdim=True) / b
        exponent = (1.0 - power) / (1.0 + power)
        move = 2.0 / (1.0 + power) ** 2 * a.log() - exponent * log_a - log_b
        move = move / ((1.0 - power) * b / a + power * c / b)
        change = base * (steps - log_b) + power * move * (below - base * c / b)
        for_epsilon = -power * power * (grad * change).sum(-1, keepdim=True) / b
    # Keeps NaN probabilities, which are not above 0
    shown = probs.detach().sum(-1, keepdim=True) * 0.0
    return (
        for_scores + shown if for_scores is not None and wanted[0] else None,
        for_epsilon + shown if for_epsilon is not None else None,
        for_gamma + shown if for_gamma is not None and wanted[2] else None,
    )
