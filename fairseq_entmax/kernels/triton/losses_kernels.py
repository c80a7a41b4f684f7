"""The kernels of :mod:`fairseq_entmax.kernels.triton.losses`; tiles are those of rows_kernels."""

from __future__ import annotations

import triton
import triton.language as tl

from fairseq_entmax.kernels.triton.math import (
    HALF,
    LOG2_E,
    MOST_STEPS,
    ONE,
    max_keys,
    newton_step,
    numbers_of,
    of_rows,
    power,
    power_at,
    solve,
    sum_keys,
)
from fairseq_entmax.kernels.triton.rows_kernels import load_scores, tile_at

# What the first kernel writes of each row
SUMS = tl.constexpr(8)


@triton.jit(do_not_specialize=["rows"])
def sums_kernel(
    scores_ptr, sums_ptr, rows, keys, epsilon_of_all,
    KIND: tl.constexpr,
    CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Solve ``ROWS`` rows; ``sums`` is ``(rows, 8)``.

    In it: largest score, NaN where there is NaN or infinity; tau, that of the sums, which are those
    of p, p / u and p (1 - u); the support; how many keys are seen, and the sum of their distances.
    """
    BLOCK: tl.constexpr = CHUNKS * LANES
    row, is_row, key, at = tile_at(rows, keys, CHUNKS, ROWS, LANES)
    zero = tl.zeros([ROWS], tl.float32)
    epsilon = zero + epsilon_of_all
    inverse = LOG2_E / epsilon
    # The largest of each key of the blocks: scores of the row, whose threshold is below its own
    tops = tl.full([CHUNKS, ROWS, LANES], float("-inf"), tl.float32)
    broken = tl.zeros([ROWS], tl.int32)
    for start in range(0, keys, BLOCK):
        scores, _inside = load_scores(scores_ptr, at, start, keys, key, is_row)
        scores, is_broken = numbers_of(scores)
        broken = tl.maximum(broken, is_broken)
        tops = tl.maximum(tops, scores)
    top = max_keys(tops)
    origin = tl.where(top == float("-inf"), 0.0, top)
    tau, _p, _total = solve(tops - of_rows(origin, tops), epsilon, inverse, KIND)
    last = tau
    total, slope = zero, zero
    # A row that is none of numbers is not solved
    moving = 1 - tl.min(broken, axis=0)
    step = 0
    while (moving > 0) & (step < MOST_STEPS):
        last = tau
        total = tl.zeros([ROWS], tl.float32)
        slope = tl.zeros([ROWS], tl.float32)
        for start in range(0, keys, BLOCK):
            scores, _inside = load_scores(scores_ptr, at, start, keys, key, is_row)
            p, slopes, _logs = power_at(
                last, scores - of_rows(origin, scores), epsilon, inverse, KIND
            )
            total += sum_keys(p)
            slope += sum_keys(slopes)
        tau, moving = newton_step(last, total, slope, epsilon, KIND)
        step += 1
    lack, support, seen, distances = zero, zero, zero, zero
    for start in range(0, keys, BLOCK):
        scores, _inside = load_scores(scores_ptr, at, start, keys, key, is_row)
        distance = scores - of_rows(origin, scores)
        p, _slopes, _logs = power_at(last, distance, epsilon, inverse, KIND)
        base = distance * of_rows(epsilon, distance) - of_rows(last, distance)
        # Also where p is too small for float32
        is_in = base > -1.0
        lack -= sum_keys(tl.where(is_in, p * base, 0.0))
        support += sum_keys(is_in.to(tl.float32))
        is_seen = distance > float("-inf")
        seen += sum_keys(is_seen.to(tl.float32))
        distances += sum_keys(tl.where(is_seen, distance, 0.0))
    to = sums_ptr + row * SUMS
    tl.store(to, tl.where(broken > 0, float("nan"), top), mask=is_row)
    tl.store(to + 1, last, mask=is_row)
    tl.store(to + 2, total, mask=is_row)
    tl.store(to + 3, slope, mask=is_row)
    tl.store(to + 4, lack, mask=is_row)
    tl.store(to + 5, support, mask=is_row)
    tl.store(to + 6, seen, mask=is_row)
    tl.store(to + 7, distances, mask=is_row)


@triton.jit(do_not_specialize=["rows"])
def gradient_kernel(
    scores_ptr, target_ptr, of_rows_ptr, grad_ptr, grad_scores_ptr, rows, keys, epsilon,
    KIND: tl.constexpr,
    CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Gradients of the scores; ``of_rows`` is ``(rows, 5)``.

    In it: largest score, NaN where the row is; tau; 1 - tau, which may have digits that tau has
    lost; q of a key that is not the target; p - q of the target.
    """
    BLOCK: tl.constexpr = CHUNKS * LANES
    row, is_row, key, at = tile_at(rows, keys, CHUNKS, ROWS, LANES)
    of = of_rows_ptr + row * 5
    top = tl.load(of, mask=is_row, other=0.0)
    tau = tl.load(of + 1, mask=is_row, other=0.0)
    rest = tl.load(of + 2, mask=is_row, other=1.0)
    other = tl.load(of + 3, mask=is_row, other=0.0)
    own = tl.load(of + 4, mask=is_row, other=0.0)
    grad = tl.load(grad_ptr + row, mask=is_row, other=0.0)
    target = tl.load(target_ptr + row, mask=is_row, other=0)
    nothing = of_rows(tl.where(top == top, 0.0, float("nan")), key)
    for start in range(0, keys, BLOCK):
        scores, inside = load_scores(scores_ptr, at, start, keys, key, is_row)
        is_masked = scores == float("-inf")
        # Not NaN, which the comparisons of a GPU and of the interpreter take in their own ways
        scaled = epsilon * (tl.where(scores == scores, scores, 0.0) - of_rows(top, scores))
        u = scaled + of_rows(rest, scores)
        u = tl.where(is_masked, 0.0, tl.where(u > 0.0, u, 0.0))
        if KIND == HALF:
            p = u * u
        elif KIND == ONE:
            p = u
        else:
            base = tl.where(is_masked, -1.0, scaled - of_rows(tau, scores))
            p, _slope, _logs = power(base, LOG2_E / epsilon, KIND)
        difference = p - tl.where(is_masked, 0.0, of_rows(other, p)) + nothing
        is_target = start + key == of_rows(target, key)
        difference = tl.where(is_target, of_rows(own, p), difference)
        tl.store(grad_scores_ptr + at + start, of_rows(grad, p) * difference, mask=inside)
