"""The proximal operator of total variation in torch's own operations, and its gradients.

Everything works on the last dimension, for all rows at once; the algorithm is that of
``docs/structured.md``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairseq_entmax.kernels.runs import Runs, equal_runs, shifted
from fairseq_entmax.kernels.structure import like_rows


def prox_tv(scores: Tensor, strength: float | Tensor, masked: Tensor) -> tuple[Tensor, Runs]:
    """``argmin_z 1/2 ||z - x||^2 + strength * sum |z_i+1 - z_i|`` along the last dimension.

    A row is cut where the solution must jump, until nothing is left to cut; all rows do the same
    steps. A cut is safe, as the message of each key to its neighbour is that of a chain in which
    every difference has the cost of the two sides alone, whatever the levels are.

    Returns z, ``-inf`` at ``masked`` keys, which are not there and part their neighbours; and the
    runs that it is constant on, to the bit.
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
        # On the high side of a cut the level is paid, on the low side it is gained
        side = torch.where(high, -1.0, 1.0).to(scores.dtype) * cut
        shifts += side
        shifts -= shifted(side, 1, 0.0)
        starts = starts | shifted(cut, 1, False)
    if isinstance(strength, Tensor) or strength == 0.0:
        # Nothing is added up where nothing is smoothed
        zero = level == 0.0
        starts, mean = starts | zero, torch.where(zero, fixed, mean)
    return mean.masked_fill(masked, -math.inf), Runs.of(starts)


def _is_high(steps: Tensor, level: Tensor, runs: Runs) -> Tensor:
    """Which keys of their runs lie on the higher side, by their best labels from the last one on.

    Deciding for each key by itself is the same without rounding, and wrong with it where several
    labellings are equally good.
    """
    flow = _clipped_sums(steps, level, runs.starts)
    before = shifted(flow, 1, 0.0).masked_fill(runs.starts, 0.0) + steps
    ends = runs.ends()
    surely_high = torch.where(ends, before < 0.0, before < -level)
    decided = ends | surely_high | (before >= level)
    # Others are what the next one that is decided is
    places = torch.arange(steps.size(-1), device=steps.device).expand_as(steps)
    last = steps.size(-1) - 1
    following = places.where(decided, last).flip(-1).cummin(-1).values.flip(-1)
    return surely_high.gather(-1, following)


def _clipped_sums(steps: Tensor, level: Tensor, starts: Tensor) -> Tensor:
    """``f_i = clip(f_i-1 + steps_i, -level, level)``, where f before a start is 0.

    A clip of a sum, ``f -> clip(f + add, low, high)``, of another one is one again: they are
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
    """Gradients for scores and strength through the smoothing.

    ``values`` are equal where the smoothed scores are, and in their order; keys that are ``alone``
    do not move with neighbours of equal value; ``moved`` is the gradient for the smoothed scores.
    """
    values = values.detach()
    runs = equal_runs(values, alone)
    there = torch.ones_like(runs.starts) if masked is None else ~masked
    left, right = shifted(there, 1, False), shifted(there, -1, False)
    pull = (shifted(values, 1, 0.0) - values).sign() * (left & runs.starts)
    pull = pull + (shifted(values, -1, 0.0) - values).sign() * (right & runs.ends())
    for_strength = (runs.mean(pull) * moved).sum(-1, keepdim=True)
    return runs.mean(moved), for_strength
