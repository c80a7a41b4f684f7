"""Mappings with structure in torch's own operations, and their gradients.

Everything works on the last dimension, in float32 or float64. A mapping is a proximal operator
and then alpha-entmax (Niculae and Blondel 2017 for alpha = 2; the same optimality conditions hold
for every alpha), but for sq-pnorm-max, which has a threshold of its own. The gradients need the
probabilities alone: what is equal and not zero in them moved together.

Functions here also are those that autograd follows, for gradients of gradients, where a kernel has
computed what they are given.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.kernels import derivatives, torch_ops
from fairseq_entmax.kernels.structure import PNORM, TV

# Below, sq-pnorm-max is the uniform distribution over the largest scores in any case
SMALLEST_P_EPSILON = 1e-7
# Newton's steps of sq-pnorm-max; ten were the most seen, halving the interval takes up to so many
MOST_PNORM_STEPS = 60


def takes(scores: Tensor, kind: str) -> bool:
    """Whether the functions are for such scores: for all in float32 and float64."""
    return True


def probabilities(
    scores: Tensor, kind: str, epsilon: float | Tensor, strength: float | Tensor
) -> Tensor:
    """As :meth:`fairseq_entmax.kernels.backends.StructuredRows.probabilities`."""
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    top = scores.amax(-1, keepdim=True)  # NaN where a score is
    masked = scores == -math.inf
    without_keys = top == -math.inf
    broken = (
        (~(top < math.inf)).logical_or(_is_nan(epsilon, top)).logical_or(_is_nan(strength, top))
    )
    broken = broken & ~without_keys
    numbers = (scores - top).masked_fill(broken | without_keys, 0.0)
    epsilon, strength = _without_nan(epsilon, 1.0), _without_nan(strength, 1.0)
    if kind == PNORM:
        probs = _pnorm(numbers, epsilon, strength)
    elif kind == TV:
        # Further below no key is in the support, and sums over a run are to stay finite
        least = -math.sqrt(torch.finfo(scores.dtype).max)
        values, runs = prox_tv(numbers.clamp(min=least), strength, masked)
        probs = _of_groups(torch_ops.probabilities(values, epsilon), runs)
    else:
        order = numbers.argsort(dim=-1, descending=True, stable=True)
        values, runs = _prox_ranks(numbers.gather(-1, order), strength, masked.gather(-1, order))
        # In their own places, so that without a strength the sums are those of alpha-entmax
        placed = torch.empty_like(values).scatter_(-1, order, values)
        ranked = torch_ops.probabilities(placed, epsilon).gather(-1, order)
        probs = torch.empty_like(ranked).scatter_(-1, order, _of_groups(ranked, runs))
    probs = probs.masked_fill(without_keys, 0.0)
    return probs.masked_fill_(broken, math.nan)


def gradients(
    probs: Tensor,
    kind: str,
    epsilon: float | Tensor,
    strength: float | Tensor,
    masked: Tensor | None,
    grad: Tensor,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """As :meth:`fairseq_entmax.kernels.backends.StructuredRows.gradients`."""
    if kind == PNORM:
        return _pnorm_gradients(probs, epsilon, strength, grad, wanted)
    rows: ModuleType = derivatives if derivatives.are_wanted(grad) else torch_ops
    for_scores = for_epsilon = for_strength = None
    if wanted[1]:
        for_epsilon = rows.alpha_gradient(probs, epsilon, grad)
    if wanted[0] or wanted[2]:
        moved = rows.scores_gradient(probs, epsilon, grad)
        parts = (_tv_gradients if kind == TV else _oscar_gradients)(probs, strength, masked, moved)
        for_scores, for_strength = parts
    return for_scores if wanted[0] else None, for_epsilon, for_strength if wanted[2] else None


# --- runs of neighbours --------------------------------------------------------------------------


class Runs(NamedTuple):
    """A row cut into runs of adjacent keys.

    Attributes:
        number: ``(..., keys)``, the number of the run that a key is in, from 0.
        starts: ``(..., keys)``, true where a run starts.
    """

    number: Tensor
    starts: Tensor

    @classmethod
    def of(cls, starts: Tensor) -> Runs:
        return cls(starts.cumsum(-1) - 1, starts)

    def total(self, values: Tensor) -> Tensor:
        """At each key the sum of ``values`` over its run. Autograd follows it."""
        sums = torch.zeros_like(values).scatter_add(-1, self.number, values)
        return sums.gather(-1, self.number)

    def mean(self, values: Tensor) -> Tensor:
        return self.total(values) / self.total(torch.ones_like(values))

    def ends(self) -> Tensor:
        return _shifted(self.starts, -1, True)


def _shifted(values: Tensor, by: int, fill: float | bool) -> Tensor:
    """Each key gets what the key ``by`` places before has, and ``fill`` where there is none."""
    moved = torch.full_like(values, float(fill))  # tracing knows no fill of true
    if by > 0:
        moved[..., by:] = values[..., :-by]
    else:
        moved[..., :by] = values[..., -by:]
    return moved


def equal_runs(values: Tensor, alone: Tensor) -> Runs:
    """Runs of equal values; keys that are ``alone`` are runs of one."""
    values = values.detach()
    starts = (values != _shifted(values, 1, 0.0)) | alone | _shifted(alone, 1, True)
    starts[..., :1] = True
    return Runs.of(starts)


def _of_groups(probs: Tensor, runs: Runs) -> Tensor:
    """The first number of each run at all of its keys: vectorised functions may differ by a bit."""
    places = torch.arange(probs.size(-1), device=probs.device).expand_as(probs)
    return probs.gather(-1, places.where(runs.starts, 0).cummax(-1).values)


# --- total variation -----------------------------------------------------------------------------


def prox_tv(scores: Tensor, strength: float | Tensor, masked: Tensor) -> tuple[Tensor, Runs]:
    """``argmin_z 1/2 ||z - x||^2 + strength * sum |z_i+1 - z_i|`` along the last dimension.

    A row is cut where the solution must jump, until nothing is left to cut; all rows do the same
    steps. A cut is safe, as the message of each key to its neighbour is that of a chain in which
    every difference has the cost of the two sides alone, whatever the levels are.

    Args:
        scores: ``(..., keys)``, finite where not masked.
        strength: number or tensor, 0 or more.
        masked: ``(..., keys)``, bool: keys that are not there, and part their neighbours.

    Returns:
        z, ``-inf`` at masked keys; and the runs that it is constant on, to the bit.
    """
    fixed = scores.masked_fill(masked, 0.0)
    shifts = torch.zeros_like(fixed)  # in units of the strength: what the cuts at a key add
    level = _as(strength, scores)
    starts = masked | _shifted(masked, 1, True)
    starts[..., :1] = True
    may_look = not torch.jit.is_tracing()
    for _ in range(scores.size(-1)):
        runs = Runs.of(starts)
        values = fixed + shifts * level
        mean = runs.mean(values)
        high = _is_high(mean - values, level, runs)
        cut = ~_shifted(starts, -1, True) & (high != _shifted(high, -1, True))
        if may_look and not cut.any():
            break
        # On the high side of a cut the level is paid, on the low side it is gained
        side = torch.where(high, -1.0, 1.0).to(scores.dtype) * cut
        shifts += side
        shifts -= _shifted(side, 1, 0.0)
        starts = starts | _shifted(cut, 1, False)
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
    before = _shifted(flow, 1, 0.0).masked_fill(runs.starts, 0.0) + steps
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
    at_start = steps.maximum(low).minimum(high)
    low, high = torch.where(starts, at_start, low), torch.where(starts, at_start, high)
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


def _tv_gradients(
    probs: Tensor, strength: float | Tensor, masked: Tensor | None, moved: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients for scores and strength, from those for the smoothed scores."""
    for_scores, for_strength = tv_gradients(probs, probs == 0.0, masked, moved)
    return unless_zero(strength, for_scores, moved), for_strength


def tv_gradients(
    values: Tensor, alone: Tensor, masked: Tensor | None, moved: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients through the smoothing, of which a function that keeps order is known.

    Args:
        values: ``(..., keys)``, equal where the smoothed scores are, and in their order.
        alone: keys that do not move with neighbours of equal value.
        masked: keys that are not there; None for none.
        moved: gradient for the smoothed scores.

    Returns:
        ``(..., keys)`` for the scores, and ``(..., 1)`` for the strength.
    """
    values = values.detach()
    runs = equal_runs(values, alone)
    there = torch.ones_like(runs.starts) if masked is None else ~masked
    left, right = _shifted(there, 1, False), _shifted(there, -1, False)
    pull = (_shifted(values, 1, 0.0) - values).sign() * (left & runs.starts)
    pull = pull + (_shifted(values, -1, 0.0) - values).sign() * (right & runs.ends())
    for_strength = (runs.mean(pull) * moved).sum(-1, keepdim=True)
    return runs.mean(moved), for_strength


# --- OSCAR ---------------------------------------------------------------------------------------


def _prox_ranks(ranked: Tensor, strength: float | Tensor, masked: Tensor) -> tuple[Tensor, Runs]:
    """The projection of ``x_i + strength * i`` to non-increasing numbers, up to a constant of a row.

    On the simplex this is all of the penalty of OSCAR, as signs and the number of keys drop out.

    Args:
        ranked: ``(..., keys)``, in descending order, masked keys last.
        strength, masked: as for :func:`prox_tv`.

    Returns:
        As :func:`prox_tv`; the first number of a row is what it would be without the constant.
    """
    fixed = ranked.masked_fill(masked, 0.0)
    level = _as(strength, ranked)
    places = torch.arange(ranked.size(-1), device=ranked.device, dtype=ranked.dtype)
    places = places.expand_as(ranked)
    starts = torch.ones_like(masked)
    may_look = not torch.jit.is_tracing()
    for _ in range(ranked.size(-1)):
        runs = Runs.of(starts)
        # Apart from each other: their sum has no digits of the scores where the strength is large
        mean, place = runs.mean(fixed), runs.mean(places)
        fall = _shifted(mean, 1, 0.0) - mean
        rise = (place - _shifted(place, 1, 0.0)) * level
        pooled = starts & ~masked & (fall < rise)
        pooled[..., :1] = False
        if may_look and not pooled.any():
            break
        starts = starts & ~pooled
    values = mean + level * (place - place[..., :1])
    return values.masked_fill(masked, -math.inf), Runs.of(starts)


def prox_oscar(scores: Tensor, strength: float | Tensor, masked: Tensor) -> Tensor:
    """``argmin_z 1/2 ||z - x||^2 + strength * sum_i<j max(|z_i|, |z_j|)`` along the last dimension.

    Arguments are those of :func:`prox_tv`. Masked keys, ``-inf``, count nothing and stay.
    """
    sizes = scores.abs().masked_fill(masked, -math.inf)
    order = sizes.argsort(dim=-1, descending=True, stable=True)
    ranked = sizes.gather(-1, order)
    values, runs = _prox_ranks(ranked, strength, masked.gather(-1, order))
    # The constant that was left out: the first group pays for all keys behind each of its own
    places = torch.arange(scores.size(-1), device=scores.device, dtype=scores.dtype)
    behind = (~masked).sum(-1, keepdim=True) - 1 - runs.mean(places.expand_as(ranked))[..., :1]
    level = _as(strength, scores)
    values = (values - level * behind).clamp(min=0.0)
    solved = torch.empty_like(values).scatter_(-1, order, values) * scores.sign()
    return torch.where(masked, -math.inf, torch.where(level == 0.0, scores, solved))


def _oscar_gradients(
    probs: Tensor, strength: float | Tensor, masked: Tensor | None, moved: Tensor
) -> tuple[Tensor, Tensor]:
    """As :func:`_tv_gradients`."""
    # What is moved sums to 0, which a thousand ranks times it keep only if they do, too
    middle = ((probs.detach() > 0).sum(-1, keepdim=True) - 1).to(probs.dtype) / 2
    for_scores, for_strength = rank_gradients(probs, probs == 0.0, moved, middle)
    return unless_zero(strength, for_scores, moved), for_strength


def unless_zero(strength: float | Tensor, shared: Tensor, alone: Tensor) -> Tensor:
    """What keys share, but what each has alone where the strength is 0.

    A strength that begins to grow moves what is equal together; the scores move alone until then.
    """
    return torch.where(_as(strength, alone) == 0.0, alone, shared)


def rank_gradients(
    values: Tensor, alone: Tensor, moved: Tensor, middle: float | Tensor = 0.0
) -> tuple[Tensor, Tensor]:
    """Gradients through the pooling of :func:`_prox_ranks`.

    Args, Returns: as of :func:`tv_gradients`; values of keys that are alone are not looked at.
    ``middle`` is the rank that counts nothing.
    """
    values = values.detach()
    order = values.argsort(dim=-1, descending=True, stable=True)
    runs = equal_runs(values.gather(-1, order), alone.expand_as(values).gather(-1, order))
    ranked = moved.gather(-1, order)
    places = torch.arange(values.size(-1), device=values.device, dtype=values.dtype)
    ranks = runs.mean(places.expand_as(values)) - middle
    for_strength = (ranks * ranked).sum(-1, keepdim=True)
    return torch.zeros_like(moved).scatter(-1, order, runs.mean(ranked)), for_strength


# --- squared p-norm ------------------------------------------------------------------------------


def _pnorm(distances: Tensor, epsilon: float | Tensor, gamma: float | Tensor) -> Tensor:
    """sq-pnorm-max of rows whose largest score is 0; ``-inf`` at masked keys.

    The threshold lies ``s`` below the largest score. With ``v_i = [1 + z_i / s]_+`` and
    ``r = 1 / epsilon``, ``s`` solves ``s A ** ((1 - r) / (1 + r)) B = gamma``, where
    ``A = sum v ** (r + 1)`` and ``B = sum v ** r``: the left side grows with s, and s lies in
    ``[gamma n ** (-2 / q), gamma]``. Newton's method, kept inside of what is known of s.
    """
    level = _as(gamma, distances)
    epsilon = _as(epsilon, distances).clamp(min=SMALLEST_P_EPSILON)
    power = 1.0 / epsilon
    count = (distances > -math.inf).sum(-1, keepdim=True).clamp(min=1).to(distances.dtype)
    low = level * count ** (-2.0 * power / (1.0 + power))
    high = level.expand_as(low).clone()
    scale = high.clone()
    may_look = distances.device.type == "cpu" and not torch.jit.is_tracing()
    tolerance = torch_ops.TOLERANCE[distances.dtype]
    for _ in range(MOST_PNORM_STEPS):
        parts = _pnorm_parts(distances / scale, power)
        excess = (scale * parts.norm * parts.sum - level) / level
        if may_look and not (excess.abs() > tolerance).any():
            break
        high, low = torch.where(excess > 0, scale, high), torch.where(excess < 0, scale, low)
        ratio = parts.sum * parts.sum / parts.sum_above
        slope = parts.norm * ((1.0 - power) * ratio + power * parts.sum_below)
        moved = scale - excess * level / slope
        inside = (moved > low) & (moved < high)
        scale = torch.where(excess == 0, scale, torch.where(inside, moved, (low + high) / 2))
    return parts.powers / parts.sum


class _PnormParts(NamedTuple):
    """``v ** r``, and the sums B, A, C over the support of its powers r, r + 1, r - 1.

    ``norm`` is ``A ** ((1 - r) / (1 + r))``.
    """

    powers: Tensor
    sum: Tensor
    sum_above: Tensor
    sum_below: Tensor
    norm: Tensor


def _pnorm_parts(relative: Tensor, power: Tensor) -> _PnormParts:
    """Of ``v = 1 + relative``."""
    inside = relative > -1.0
    logs = torch.log1p(torch.where(inside, relative, 0.0))
    powers = (power * logs).exp() * inside
    below = ((power - 1.0) * logs).exp() * inside
    above = (powers * logs.exp()).sum(-1, keepdim=True)
    norm = above ** ((1.0 - power) / (1.0 + power))
    return _PnormParts(
        powers, powers.sum(-1, keepdim=True), above, below.sum(-1, keepdim=True), norm
    )


def _pnorm_gradients(
    probs: Tensor,
    epsilon: float | Tensor,
    gamma: float | Tensor,
    grad: Tensor,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of sq-pnorm-max by its implicit equation, in operations that autograd follows.

    Everything is said in ``v``, of which the probabilities tell all but a scale that drops out.
    """
    inside = probs > 0
    # Rows of no keys at all have no maximum
    top = probs.detach().amax(-1, keepdim=True) if probs.numel() else probs.detach().sum(-1, True)
    # Rows without keys: all is to be 0, whatever the parameters are
    empty = top == 0
    level = torch.where(empty, 1.0, _as(gamma, probs))
    epsilon = torch.where(empty, 1.0, _as(epsilon, probs)).clamp(min=SMALLEST_P_EPSILON)
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
    # NaN among the probabilities is not to be lost where it is not above 0
    shown = probs.detach().sum(-1, keepdim=True) * 0.0
    return (
        for_scores + shown if for_scores is not None and wanted[0] else None,
        for_epsilon + shown if for_epsilon is not None else None,
        for_gamma + shown if for_gamma is not None and wanted[2] else None,
    )


# --- parameters ----------------------------------------------------------------------------------


def _as(parameter: float | Tensor, like: Tensor) -> Tensor:
    """A parameter as a tensor that broadcasts against rows."""
    if isinstance(parameter, Tensor):
        return parameter.to(like.dtype)
    return torch.full((1,), parameter, dtype=like.dtype, device=like.device)


def _is_nan(parameter: float | Tensor, like: Tensor) -> Tensor:
    if isinstance(parameter, Tensor):
        return parameter.isnan()
    return torch.full_like(like, float(math.isnan(parameter)), dtype=torch.bool)


def _without_nan(parameter: float | Tensor, instead: float) -> float | Tensor:
    if isinstance(parameter, Tensor):
        return parameter.masked_fill(parameter.isnan(), instead)
    return instead if math.isnan(parameter) else parameter
