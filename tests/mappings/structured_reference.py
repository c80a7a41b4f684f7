"""Independent references for the structured mappings: definitions, solved slowly in float64.

Nothing here is shared with the package: total variation by Condat's sequential algorithm in exact
fractions, OSCAR by scipy's isotonic regression, sq-pnorm-max by bisection.
"""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import torch
from scipy.optimize import isotonic_regression

from tests.mappings.reference import bisection

# -- total variation -------------------------------------------------------------------------


def tv_condat(row, strength):
    """``argmin 1/2 |z - x|^2 + strength sum |z_{i+1} - z_i|`` in fractions, without rounding.

    Condat 2013, *A direct algorithm for 1D total variation denoising*: a segment grows while some
    value between ``low`` and ``high`` keeps its dual variable, a running sum, inside the strength.

    Args:
        row: fractions, at least one.
        strength: a fraction, 0 or more.
    """
    result, last = [None] * len(row), len(row) - 1
    here = start = low_end = high_end = 0
    low, high, low_sum, high_sum = row[0] - strength, row[0] + strength, strength, -strength
    while True:
        at_end = here == last
        if (at_end and low_sum < 0) or (not at_end and row[here + 1] + low_sum < low - strength):
            result[start : low_end + 1] = [low] * (low_end + 1 - start)
            here = start = low_end = low_end + 1
            low, low_sum = row[here], strength
            if at_end:
                high_sum = row[here] + strength - high
            else:
                high_end, high, high_sum = here, row[here] + 2 * strength, -strength
        elif (at_end and high_sum > 0) or (
            not at_end and row[here + 1] + high_sum > high + strength
        ):
            result[start : high_end + 1] = [high] * (high_end + 1 - start)
            here = start = high_end = high_end + 1
            high, high_sum = row[here], -strength
            if at_end:
                low_sum = row[here] - strength - low
            else:
                low_end, low, low_sum = here, row[here] - 2 * strength, strength
        elif at_end:
            count = here - start + 1
            result[start:] = [low + low_sum / count] * count
            return result
        else:
            here += 1
            count = here - start + 1
            low_sum, high_sum = low_sum + row[here] - low, high_sum + row[here] - high
            if low_sum >= strength:
                low, low_sum, low_end = low + (low_sum - strength) / count, strength, here
            if high_sum <= -strength:
                high, high_sum, high_end = high + (high_sum + strength) / count, -strength, here


# -- whole rows --------------------------------------------------------------------------------


def chains(row):
    """Slices of a row between its masked keys."""
    ends = [-1, *np.flatnonzero(np.isneginf(np.asarray(row))), len(row)]
    pairs = itertools.pairwise(ends)
    return [slice(left + 1, right) for left, right in pairs if right > left + 1]


def for_rows(function):
    """Turn a function of one row and a strength into one of tensors, which returns float64."""

    @functools.lru_cache(maxsize=4096)  # tests of several precisions repeat the same rows
    def of_row(row, strength):
        return torch.tensor(np.asarray(function(np.frombuffer(row), strength)))

    def apply(scores, strength):
        scores = scores.detach().double()
        strengths = torch.as_tensor(strength, dtype=torch.float64).expand(*scores.shape[:-1], 1)
        rows = scores.reshape(-1, scores.shape[-1]).numpy()
        pairs = zip(rows, strengths.reshape(-1).tolist(), strict=True)
        return torch.stack([of_row(row.tobytes(), own) for row, own in pairs]).view(scores.shape)

    return apply


def exact_tv_row(row, strength):
    """:func:`tv_condat` of each chain as fractions, with -inf at masked keys."""
    result = [-math.inf] * len(row)
    for chain in chains(row):
        values = [Fraction(float(score)) for score in row[chain]]
        result[chain] = tv_condat(values, Fraction(strength))
    return result


prox_tv_rows = for_rows(lambda row, own: [float(value) for value in exact_tv_row(row, own)])


@for_rows
def oscar_on_simplex_rows(row, strength):
    """OSCAR on the simplex: it depends on ranks alone, because no weight is negative."""
    order = np.argsort(-row, kind="stable")[: np.isfinite(row).sum()]
    result = np.full_like(row, -math.inf)
    fit = isotonic_regression(row[order] + strength * np.arange(len(order)), increasing=False)
    result[order] = fit.x
    return result


def fusedmax_rows(scores, tv, alpha):
    return bisection(prox_tv_rows(scores, tv), alpha)


def oscarmax_rows(scores, oscar, alpha):
    return bisection(oscar_on_simplex_rows(scores, oscar), alpha)


def pnorm_rows(scores, p, gamma):
    """``argmax x.y - gamma/2 |y|_p^2`` on the simplex, by bisection on the threshold.

    Setting the derivative in y to zero gives ``gamma |y|_p^(2-p) y^(p-1) = [x - t]_+``. Multiplied
    by y and summed, ``gamma |y|_p^2 = y.[x - t]_+``, whose right side falls as t grows.
    """
    scores = scores.detach().double()
    p, gamma = (torch.as_tensor(value, dtype=torch.float64) for value in (p, gamma))
    top = scores.amax(-1, keepdim=True)
    all_masked = top == -math.inf
    distance = scores - torch.where(all_masked, 0.0, top)

    def at(below):
        above = (distance + below).clamp(min=0.0)
        power = torch.exp(torch.log(above / below) / (p - 1.0))
        return above, power / power.sum(-1, keepdim=True)

    low, high = torch.zeros_like(top), torch.ones_like(top) * gamma
    for _ in range(120):
        middle = (low + high) / 2
        above, probs = at(middle)
        norm = (probs**p).sum(-1, keepdim=True) ** (2.0 / p)
        too_low = (above * probs).sum(-1, keepdim=True) < gamma * norm
        low, high = torch.where(too_low, middle, low), torch.where(too_low, high, middle)
    return torch.where(all_masked, 0.0, at(high)[1])


# -- optimality conditions -----------------------------------------------------------------------


def total_variation(probs):
    return probs.diff(dim=-1).abs().sum(-1)


def oscar_penalty(probs):
    """Sum over pairs of the larger absolute value, as in the definition."""
    first, second = torch.combinations(torch.arange(probs.shape[-1])).T
    return torch.maximum(probs[..., first].abs(), probs[..., second].abs()).sum(-1)


def entropy_term(probs, alpha):
    """The regulariser Omega of alpha-entmax up to a constant; negative entropy for alpha = 1."""
    if alpha == 1.0:
        return torch.special.entr(probs).sum(-1).neg()
    return (probs**alpha).sum(-1) / (alpha * (alpha - 1.0))
