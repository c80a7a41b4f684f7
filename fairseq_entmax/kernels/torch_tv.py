"""The proximal operator of total variation in torch's own operations, and its gradients.

Everything works on the last dimension, on all rows at once. ``docs/structured.md`` describes the
algorithm.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairseq_entmax.kernels.runs import Runs, equal_runs, shifted
from fairseq_entmax.kernels.structure import like_rows


def prox_tv(scores: Tensor, strength: float | Tensor, masked: Tensor) -> tuple[Tensor, Runs]:
    """``argmin_z 1/2 ||z - x||^2 + strength * sum |z_i+1 - z_i|`` along the last dimension.

    Rows are cut where the solution must jump, until nothing is left to cut; all take the same
    steps. A cut is safe, because the message from each key to its neighbour is that of a chain in
    which the cost of a difference depends only on its two sides, not on their levels.

    Returns z, and the runs on which it is constant to the bit. Masked keys count as absent and
    separate their neighbours; their z is ``-inf``.
    """
    fixed = scores.masked_fill(masked, 0.0)
    shifts = torch.zeros_like(fixed)  # in units of the strength: what the cuts at a key add
    level = like_rows(strength, scores)
    starts = masked | shifted(masked, 1, True)
    starts[..., :1] = True
    for _ in range(scores.size(-1)):
        runs = Runs.of(starts)
        values = fixed + shifts * level
        mean = runs.mean(values)
        high = _is_high(mean - values, level, runs)
        cut = ~shifted(starts, -1, True) & (high != shifted(high, -1, True))
        if not cut.any():
            break
        # The high side of a cut pays the level, the low side gains it
        side = torch.where(high, -1.0, 1.0).to(scores.dtype) * cut
        shifts += side
        shifts -= shifted(side, 1, 0.0)
        starts = starts | shifted(cut, 1, False)
    if isinstance(strength, Tensor) or strength == 0.0:
        # At strength 0 every score stays exactly as it is
        zero = level == 0.0
        starts, mean = starts | zero, torch.where(zero, fixed, mean)
    return mean.masked_fill(masked, -math.inf), Runs.of(starts)


def _is_high(steps: Tensor, level: Tensor, runs: Runs) -> Tensor:
    """Which keys lie on the higher side of their run, by the best labels, found from its end.

    Without rounding, each key could be decided by itself. With it, that is wrong if several
    labellings are equally good.
    """
    flow = _clipped_sums(steps, level, runs.starts)
    before = shifted(flow, 1, 0.0).masked_fill(runs.starts, 0.0) + steps
    ends = runs.ends()
    surely_high = torch.where(ends, before < 0.0, before < -level)
    decided = ends | surely_high | (before >= level)
    # Other keys get the label of the next key that is decided
    places = torch.arange(steps.size(-1), device=steps.device).expand_as(steps)
    last = steps.size(-1) - 1
    following = places.where(decided, last).flip(-1).cummin(-1).values.flip(-1)
    return surely_high.gather(-1, following)


def _clipped_sums(steps: Tensor, level: Tensor, starts: Tensor) -> Tensor:
    """``f_i = clip(f_i-1 + steps_i, -level, level)``, where f before a start is 0.

    Two functions ``f -> clip(f + add, low, high)`` compose to one of the same form, so they are
    composed over 1, 2, 4, ... keys.
    """
    add = steps
    low = (-level).expand_as(steps)
    high = level.expand_as(steps)
    first = steps.maximum(low).minimum(high)
    low, high = torch.where(starts, first, low), torch.where(starts, first, high)
    reach = 1
    while reach < steps.size(-1):
        least, most = low[..., reach:], high[..., reach:]
        then = add[..., reach:]
        new_low = (low[..., :-reach] + then).maximum(least).minimum(most)
        new_high = (high[..., :-reach] + then).maximum(least).minimum(most)
        low = torch.cat((low[..., :reach], new_low), -1)
        high = torch.cat((high[..., :reach], new_high), -1)
        add = torch.cat((add[..., :reach], then + add[..., :-reach]), -1)
        reach *= 2
    return low


def tv_gradients(
    values: Tensor, alone: Tensor, masked: Tensor | None, moved: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of scores and strength through the smoothing.

    ``values`` have the order of the smoothed scores, and are equal where they are. Keys that are
    ``alone`` do not move with equal neighbours. ``moved`` is the gradient of the smoothed scores.
    """
    values = values.detach()
    runs = equal_runs(values, alone)
    there = torch.ones_like(runs.starts) if masked is None else ~masked
    left, right = shifted(there, 1, False), shifted(there, -1, False)
    pull = (shifted(values, 1, 0.0) - values).sign() * (left & runs.starts)
    pull = pull + (shifted(values, -1, 0.0) - values).sign() * (right & runs.ends())
    for_strength = (runs.mean(pull) * moved).sum(-1, keepdim=True)
    return runs.mean(moved), for_strength
