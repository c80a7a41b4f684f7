"""The kernels of :mod:`fairseq_entmax.kernels.triton.structured` for total variation.

A tile has the shape (chunks, rows, lanes), as in :mod:`fairseq_entmax.kernels.triton.rows_kernels`,
but scans need the keys on one axis: short rows lie in chunks, with one lane, so that a thread has
a row for itself and scans it without another thread; long rows are one chunk.

What a key has to know of its neighbours comes by scans too, since a tile cannot be moved along an
axis otherwise; where it is in memory, it is loaded again.

The algorithm is that of ``docs/structured.md``: a chain is cut, again and again, between the keys
whose value will be above the mean of their segment and those whose value will be below.
"""

# Triton's language in Python's clothes: what is in a kernel has other types than it seems

from __future__ import annotations

import triton
import triton.language as tl

from fairseq_entmax.kernels.triton.math import (
    LOG2_E,
    alpha_gradient,
    alpha_sums,
    any_for,
    max_keys,
    numbers_of,
    of_rows,
    or_without,
    share_of,
    solve,
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

# What a segment ends with: nothing, a cut with the higher or the lower value on this side, or the
# end of a chain. The first three are labels too, of keys that have that of their neighbour, or are
# above or below the mean.
NOTHING, HIGH, LOW, CHAIN = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2), tl.constexpr(3)
# Added to the number of keys where a segment starts: above any number of keys
STARTS = tl.constexpr(1 << 20)
# Sums over a row of the first are inside float32, and never above the second
MOST_DISTANCE = tl.constexpr(1e25)
MOST_STRENGTH = tl.constexpr(1e30)


@triton.jit
def _add(sum_left, count_left, sum_right, count_right):
    """Sum and number of keys of the last segment; :data:`STARTS` is added where it starts here."""
    apart = count_right >= STARTS
    total = tl.where(apart, sum_right, sum_left + sum_right)
    return total, tl.where(apart, count_right, count_left + count_right)


@triton.jit
def _nearest(right, left):
    """The nearest number to the right that is not NaN, in a scan from there."""
    return tl.where(left == left, left, right)


@triton.jit
def _compose(add_left, low_left, high_left, add_right, low_right, high_right):
    """``x -> min(max(x + add, low), high)`` of the left, then of the right: one more of these."""
    low = tl.minimum(tl.maximum(low_left + add_right, low_right), high_right)
    high = tl.minimum(tl.maximum(high_left + add_right, low_right), high_right)
    return add_left + add_right, low, high


@triton.jit
def _behind(left, right):
    """Bits 2 and 3: bits 0 and 1 of the key before; bit 4: the range has a key before its last."""
    before = tl.where(right >= 16, right & 12, (left & 3) << 2)
    return (right & 3) | before | 16


@triton.jit
def _label(right, left):
    """Bits 0 and 1: label of the first key, or nothing; bits 2 and 3: what it has from the others.

    In a scan from the right.
    """
    of_right = tl.where((right & 3) > 0, (right & 3) << 2, right & 12)
    return (left & 3) | tl.where((left & 12) > 0, left & 12, of_right)


@triton.jit
def _means(x, starts, ends, AXIS: tl.constexpr):
    """The mean of each segment, at all of its keys: the same number, to the bit."""
    count = tl.where(starts, STARTS + 1, 1)
    total, count = tl.associative_scan((x, count), AXIS, _add)
    mean = total / (count & (STARTS - 1)).to(tl.float32)
    return tl.associative_scan(tl.where(ends, mean, float("nan")), AXIS, _nearest, reverse=True)


@triton.jit
def _raised(end, strength):
    """What a cut adds to the key behind it, and takes from the key before."""
    return tl.where(end == HIGH, strength, tl.where(end == LOW, -strength, 0.0))


@triton.jit
def _round(x, ends, strength, AXIS: tl.constexpr):
    """The means of all segments, and the ends once each that has to be is cut.

    Args:
        x: a tile of numbers.
        ends: what each key ends.
        strength: of rows, of a shape that broadcasts to that of the tile.
    """
    before = (tl.associative_scan(ends | (CHAIN << 2), AXIS, _behind) >> 2) & 3
    starts, is_end = before != NOTHING, ends != NOTHING
    x = x + (_raised(before, strength) - _raised(ends, strength))
    mean = _means(x, starts, is_end, AXIS)
    # The flow d_i = clip(d_i-1, -strength, strength) + mean - x_i, 0 before a segment
    gap = mean - x
    low = tl.where(starts, gap, gap - strength)
    high = tl.where(starts, gap, gap + strength)
    add = tl.where(starts, 0.0, gap)
    _, flow, _ = tl.associative_scan((add, low, high), AXIS, _compose)
    # Only labels that follow from that of the next key are those of a cut: a label of each key's
    # own goes wrong where scores are equal
    certain = tl.where(flow < -strength, HIGH, tl.where(flow >= strength, LOW, NOTHING))
    label = tl.where(is_end, tl.where(flow < 0.0, HIGH, LOW), certain)
    labels = tl.associative_scan(label, AXIS, _label, reverse=True)
    cut = (ends == NOTHING) & (label != NOTHING) & (label != (labels >> 2))
    return mean, tl.where(cut, label, ends), tl.max(max_keys(cut.to(tl.int32)), axis=0)


@triton.jit
def _prox(x, ends, strength, AXIS: tl.constexpr):
    """Segments of which each has the mean of its keys.

    Args:
        x: a tile, 0 at masked keys.
        ends: :data:`CHAIN` at each masked key and before it, and at the last key.
        strength: as in :func:`_round`, above 0 where not all keys are ends.
    """
    mean = x
    cuts = 1
    # Each round cuts somewhere, or is the last
    while cuts > 0:
        mean, ends, cuts = _round(x, ends, strength, AXIS)
    return mean


@triton.jit
def _tile(rows, keys, one, CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr):
    """As :func:`fairseq_entmax.kernels.triton.rows_kernels.tile_at`."""
    row, is_row, key, at = tile_at(rows, keys, CHUNKS, ROWS, LANES)
    if LANES == 1:
        # Were it known to be 1, Triton would deal neighbours in memory out to neighbouring threads
        at = row[None, :, None] * keys + key * one
    return row, is_row, key, at


@triton.jit(do_not_specialize=[*NOT_SPECIALIZED, "strength_inner", "one"])
def tv_forward_kernel(
    scores_ptr, epsilon_ptr, strength_ptr, probs_ptr,
    rows, keys, inner, entries, strength_inner, strength_entries, one,
    KIND: tl.constexpr, CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Probabilities of ``ROWS`` rows; scores and probabilities ``(rows, keys)``, contiguous."""
    AXIS: tl.constexpr = 0 if LANES == 1 else 2
    row, is_row, key, at = _tile(rows, keys, one, CHUNKS, ROWS, LANES)
    given = epsilon_of(epsilon_ptr, row, is_row, inner, entries, KIND)
    strength = tl.load(
        strength_ptr + row // strength_inner % strength_entries, mask=is_row, other=0.0
    )
    epsilon = any_for(given)
    inverse = LOG2_E / epsilon
    scores, inside = load_scores(scores_ptr, at, 0, keys, key, is_row)
    after, _ = load_scores(scores_ptr, at, 1, keys, key, is_row)
    scores, broken = numbers_of(scores)
    after, _ = numbers_of(after)
    top = max_keys(scores)
    broken = or_without(or_without(broken, given, top), strength, top)
    # Distances keep their digits where all scores are far from 0
    distance = scores - of_rows(tl.where(top == float("-inf"), 0.0, top), scores)
    masked = scores == float("-inf")
    distance = tl.where(masked, 0.0, tl.maximum(distance, -MOST_DISTANCE))
    strength = of_rows(strength, scores)
    moves = strength > 0.0
    strength = tl.minimum(tl.where(moves, strength, 1.0), MOST_STRENGTH)
    is_end = masked | (after == float("-inf")) | (moves == 0)
    z = _prox(distance, tl.where(is_end, CHAIN, NOTHING), strength, AXIS)
    # A mean of one number may have been rounded
    z = tl.where(masked, float("-inf"), tl.where(moves, z, distance))
    top = max_keys(z)
    z -= of_rows(tl.where(top == float("-inf"), 0.0, top), z)
    _, p, total = solve(z, epsilon, inverse, KIND)
    tl.store(probs_ptr + at, p * of_rows(share_of(total, broken), p), mask=inside)


@triton.jit
def _sign_of(other, own, counts):
    """The sign of the difference of probabilities, 0 where the other does not count."""
    above = tl.where(counts & (other > own), 1.0, 0.0)
    return above - tl.where(counts & (other < own), 1.0, 0.0)


@triton.jit(do_not_specialize=[*NOT_SPECIALIZED, "strength_inner", "one"])
def tv_backward_kernel(
    probs_ptr, epsilon_ptr, strength_ptr, masked_ptr, grad_ptr,
    grad_scores_ptr, grad_epsilon_ptr, grad_strength_ptr,
    rows, keys, inner, entries, strength_inner, strength_entries, one,
    KIND: tl.constexpr, HAS_MASK: tl.constexpr,
    FOR_SCORES: tl.constexpr, FOR_EPSILON: tl.constexpr, FOR_STRENGTH: tl.constexpr,
    CHUNKS: tl.constexpr, ROWS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Gradients of ``ROWS`` rows; tensors ``(rows, keys)``, contiguous, parameters' ``(rows,)``.

    A group is a run of equal probabilities: its keys share what entmax alone gives them. The
    strength pulls a group towards each of its two neighbours.
    """
    AXIS: tl.constexpr = 0 if LANES == 1 else 2
    row, is_row, key, at = _tile(rows, keys, one, CHUNKS, ROWS, LANES)
    epsilon = epsilon_of(epsilon_ptr, row, is_row, inner, entries, KIND)
    p, grad, inside = load_gradients(probs_ptr, grad_ptr, at, 0, keys, key, is_row)
    s, logs, inverse_power = of_probs(p, of_rows(epsilon, p), KIND, FOR_EPSILON)
    if FOR_EPSILON:
        centred = grad - of_rows(sum_keys(p * grad), p)
        entropy, weight, from_weight, from_mean, from_log = alpha_sums(
            p, logs, inverse_power, centred, epsilon
        )
        result = alpha_gradient(entropy, weight, from_weight, from_mean, from_log, epsilon)
        tl.store(grad_epsilon_ptr + row, result, mask=is_row)
    if FOR_SCORES or FOR_STRENGTH:
        strength = tl.load(
            strength_ptr + row // strength_inner % strength_entries, mask=is_row, other=0.0
        )
        weights = sum_keys(s)
        middle = sum_keys(s * grad) / tl.where(weights == 0.0, 1.0, weights)
        alone = s * (grad - of_rows(middle, p))
        has_left, has_right = inside & (key > 0), inside & (key + 1 < keys)
        left = tl.load(probs_ptr + at - 1, mask=has_left, other=-1.0)
        right = tl.load(probs_ptr + at + 1, mask=has_right, other=-1.0)
        shared = _means(alone, left != p, right != p, AXIS)
        if FOR_SCORES:
            # Without a strength nothing is shared; one that begins to grow moves ties together
            own = tl.where(of_rows(strength == 0.0, p), alone, shared)
            tl.store(grad_scores_ptr + at, own, mask=inside)
        if FOR_STRENGTH:
            if HAS_MASK:
                has_left &= tl.load(masked_ptr + at - 1, mask=has_left, other=1) == 0
                has_right &= tl.load(masked_ptr + at + 1, mask=has_right, other=1) == 0
            pull = _sign_of(left, p, has_left) + _sign_of(right, p, has_right)
            tl.store(grad_strength_ptr + row, sum_keys(shared * pull), mask=is_row)
