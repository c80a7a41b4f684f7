"""The kernels of :mod:`fairseq_entmax.kernels.triton.structured` for the squared p-norm.

Tiles are those of :mod:`fairseq_entmax.kernels.triton.rows_kernels`. With ``epsilon = p - 1``,
``r = 1 / epsilon`` and a scale s, the distance of the largest score to the threshold,

    v_i = [1 - (top - score_i) / s]_+        y_i = v_i ** r / sum_j v_j ** r

where s is the root of an equation that rises with s (see :func:`_excess`). Nothing is computed but
from v, which is 1 at the largest score, whatever the size of scores and gamma.
"""

# Triton's language in Python's clothes: what is in a kernel has other types than it seems

from __future__ import annotations

import triton
import triton.language as tl

from fairseq_entmax.kernels.triton.math import (
    LOG2_E,
    any_for,
    log_of,
    max_keys,
    numbers_of,
    of_rows,
    or_without,
    power,
    share_of,
    sum_keys,
)
from fairseq_entmax.kernels.triton.rows_kernels import (
    NOT_SPECIALIZED,
    epsilon_of,
    load_gradients,
    load_scores,
    of_probs,
    tile_at,
)

# How far the equation may stay from its root, and how little a step may move: roundings of float32
TOLERANCE = tl.constexpr(2e-7)
LEAST_STEP = tl.constexpr(1e-7)
# Newton takes 10 at worst, and halving ends with the digits of float32
MOST_STEPS = tl.constexpr(40)


@triton.jit
def _power_of_sum(total, epsilon):
    """``A ** ((1 - r) / (1 + r))`` for A of 1 or more, and log A."""
    logs = log_of(total, total - 1.0)
    return tl.exp((epsilon - 1.0) / (epsilon + 1.0) * logs), logs


@triton.jit
def _excess(scale, distance, epsilon, gamma, KIND: tl.constexpr):
    """``phi(s) - gamma``, the slope of phi, ``v ** r`` and its sums.

    With ``A = sum v ** (r + 1)``, ``B = sum v ** r`` and ``C = sum v ** (r - 1)``,
    ``phi(s) = s B A ** ((1 - r) / (1 + r))``: the norm of the scores above the threshold to the
    power 2 - q, times the sum of their powers q - 1, for ``q = r + 1``.
    """
    base = distance / of_rows(scale, distance)
    inverse = LOG2_E / epsilon
    p, slopes, _ = power(base, of_rows(inverse, distance), KIND)
    b, c = sum_keys(p), sum_keys(slopes)
    # A row with every key masked has sums of 0
    a = tl.maximum(sum_keys(p * tl.maximum(1.0 + base, 0.0)), 1.0)
    factor, _ = _power_of_sum(a, epsilon)
    # By Cauchy-Schwarz; the difference may lose its digits
    slope = tl.maximum(c - (1.0 - epsilon) * b * b / a, epsilon * c) / epsilon
    return scale * factor * b - gamma, factor * slope, p, b


@triton.jit
def _solve(distance, epsilon, gamma, keys, KIND: tl.constexpr):
    """``v ** r`` at the root, and its sums.

    Newton's iteration from the upper end of the bracket, kept inside it by halving.
    """
    high = gamma
    count = keys.to(tl.float32)
    widest = 2.0 * epsilon / (1.0 + epsilon) * log_of(count, count - 1.0)
    low = gamma * tl.exp(-widest) * (1.0 - 1e-5)
    scale = high
    total = tl.zeros_like(gamma)
    p = tl.zeros_like(distance)
    moving = 1
    step = 0
    while (moving > 0) & (step < MOST_STEPS):
        excess, slope, p, total = _excess(scale, distance, epsilon, gamma, KIND)
        high = tl.where(excess > 0.0, scale, high)
        low = tl.where(excess > 0.0, low, scale)
        moved = scale - excess / tl.where(slope > 0.0, slope, 1.0)
        moved = tl.where((moved > low) & (moved < high), moved, 0.5 * (low + high))
        far = (tl.abs(excess) > gamma * TOLERANCE) & (tl.abs(moved - scale) > scale * LEAST_STEP)
        far &= total > 0.0
        scale = tl.where(far, moved, scale)
        moving = tl.max(far.to(tl.int32), axis=0)
        step += 1
    return p, total


@triton.jit(do_not_specialize=[*NOT_SPECIALIZED, "gamma_inner"])
def pnorm_forward_kernel(
    scores_ptr, epsilon_ptr, gamma_ptr, probs_ptr,
    rows, keys, inner, entries, gamma_inner, gamma_entries,
    KIND: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Probabilities of ``ROWS`` rows; scores and probabilities ``(rows, keys)``, contiguous."""
    row, is_row, key, at = tile_at(rows, keys, CHUNKS, ROWS, LANES)
    given = epsilon_of(epsilon_ptr, row, is_row, inner, entries, KIND)
    gamma = tl.load(gamma_ptr + row // gamma_inner % gamma_entries, mask=is_row, other=1.0)
    scores, inside = load_scores(scores_ptr, at, 0, keys, key, is_row)
    scores, broken = numbers_of(scores)
    top = max_keys(scores)
    broken = or_without(or_without(broken, given, top), gamma, top)
    distance = scores - of_rows(tl.where(top == float("-inf"), 0.0, top), scores)
    p, total = _solve(distance, any_for(given), any_for(gamma), keys, KIND)
    tl.store(probs_ptr + at, p * of_rows(share_of(total, broken), p), mask=inside)


@triton.jit(do_not_specialize=[*NOT_SPECIALIZED, "gamma_inner"])
def pnorm_backward_kernel(
    probs_ptr, epsilon_ptr, gamma_ptr, grad_ptr,
    grad_scores_ptr, grad_epsilon_ptr, grad_gamma_ptr,
    rows, keys, inner, entries, gamma_inner, gamma_entries,
    KIND: tl.constexpr,
    FOR_SCORES: tl.constexpr, FOR_EPSILON: tl.constexpr, FOR_STRENGTH: tl.constexpr,
    CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Gradients of ``ROWS`` rows; tensors ``(rows, keys)``, contiguous, parameters' ``(rows,)``.

    The derivative of the mapping sends a constant to 0. Of a gradient with mean 0 under the
    probabilities there is a diagonal part and, for the sum of 1, one along ``mean_slope``.
    """
    row, is_row, key, at = tile_at(rows, keys, CHUNKS, ROWS, LANES)
    epsilon = epsilon_of(epsilon_ptr, row, is_row, inner, entries, KIND)
    gamma = tl.load(gamma_ptr + row // gamma_inner % gamma_entries, mask=is_row, other=1.0)
    p, grad, inside = load_gradients(probs_ptr, grad_ptr, at, 0, keys, key, is_row)
    sums = sum_keys(p)
    top = max_keys(p)
    powers = p / of_rows(tl.where(top > 0.0, top, 1.0), p)
    # v ** r, v ** (r - 1), log v ** r and v
    slopes, logs, _ = of_probs(powers, of_rows(epsilon, p), KIND, FOR_EPSILON)
    v = tl.where(powers > 0.0, powers / tl.where(slopes > 0.0, slopes, 1.0), 0.0)
    b = sum_keys(powers)
    safe_b = tl.where(b > 0.0, b, 1.0)
    a = tl.maximum(sum_keys(v * powers), 1.0)
    factor, log_a = _power_of_sum(a, epsilon)
    ratio = of_rows(b / a, p)
    # C - (1 - epsilon) B ** 2 / A, without its cancellation
    apart = 1.0 - ratio * v
    spread = sum_keys(slopes * apart * apart) + epsilon * b * b / a
    centred = grad - of_rows(sum_keys(powers * grad) / safe_b, p)
    mean = sum_keys(slopes * centred) / tl.where(spread > 0.0, spread, 1.0)
    if FOR_SCORES or FOR_STRENGTH:
        mean_slope = of_rows(mean, p) * (apart + of_rows(epsilon, p) * ratio * v)
        for_scores = of_rows(factor / (epsilon * gamma), p) * slopes * (centred - mean_slope)
        for_scores = tl.where(of_rows(sums, p) == of_rows(sums, p), for_scores, float("nan"))
        if FOR_SCORES:
            tl.store(grad_scores_ptr + at, for_scores, mask=inside)
        if FOR_STRENGTH:
            result = -sum_keys(for_scores * v) / (factor * safe_b)
            tl.store(grad_gamma_ptr + row, result, mask=is_row)
    if FOR_EPSILON:
        of_a = sum_keys(v * powers * logs) / a
        of_b = sum_keys(powers * logs) / safe_b
        more = 1.0 + epsilon
        moved = 2.0 * epsilon / (more * more) * log_a + (1.0 - epsilon) / more * of_a - of_b
        result = -(sum_keys(centred * powers * logs) / safe_b + moved * mean) / epsilon
        tl.store(grad_epsilon_ptr + row, tl.where(sums == sums, result, sums), mask=is_row)
