"""What the Triton kernels share: logarithm, power, and a step of Newton's iteration.

The formulas are those of :mod:`fairseq_entmax.kernels.torch_ops`, in float32. A kernel is
compiled for one ``KIND`` of epsilon: :data:`HALF`, where a power is a product, :data:`ONE`, where
it is the number itself, or :data:`ANY`, read from memory for each row.

No library function is called except the exponential. So every GPU gives the same numbers, and so
does Triton's interpreter, up to the rounding of the exponential.
"""

from __future__ import annotations

import triton
import triton.language as tl

ANY, HALF, ONE = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
# A smaller epsilon changes no digit of softmax; the inverse of this one is well inside float32
LEAST_EPSILON = tl.constexpr(1e-9)
# How far above 1 the sum of a row may remain; the gradient of alpha needs these digits
TOLERANCE = tl.constexpr(2e-7)
MOST_STEPS = tl.constexpr(20)

LOG2_E = tl.constexpr(1.4426950408889634)
_SQRT_HALF_BITS = tl.constexpr(0x3F3504F3)
_MANTISSA_BITS = tl.constexpr(0x007FFFFF)
_LN2_HIGH = tl.constexpr(0.693359375)
_LN2_LOW = tl.constexpr(-2.12194440e-4)


def kind_of(epsilon: object) -> int:
    """The ``KIND`` for an epsilon: a number, the same for all rows, or a tensor."""
    if isinstance(epsilon, float):
        return {0.5: HALF.value, 1.0: ONE.value}.get(epsilon, ANY.value)
    return ANY.value


@triton.jit
def at_least(epsilon):
    """Epsilon, but never 0. NaN stays NaN, which Triton's maximum would not keep."""
    return tl.where(epsilon < LEAST_EPSILON, LEAST_EPSILON, epsilon)


@triton.jit
def any_for(epsilon):
    """Epsilon with a number in place of NaN, to solve rows that are then set to NaN."""
    return tl.where(epsilon == epsilon, epsilon, 1.0)


@triton.jit
def log_of(u, x):
    """Logarithm of a normal u > 0, given x = u - 1, which may have digits that u has lost.

    The polynomial is that of Cephes' logf (S. Moshier, netlib.org/cephes). NaN is not kept.
    """
    bits = u.to(tl.int32, bitcast=True) - _SQRT_HALF_BITS
    exponent = bits >> 23
    mantissa = ((bits & _MANTISSA_BITS) + _SQRT_HALF_BITS).to(tl.float32, bitcast=True)
    f = tl.where(exponent == 0, x, mantissa - 1.0)
    y = f * 7.0376836292e-2 - 1.1514610310e-1
    y = y * f + 1.1676998740e-1
    y = y * f - 1.2420140846e-1
    y = y * f + 1.4249322787e-1
    y = y * f - 1.6668057665e-1
    y = y * f + 2.0000714765e-1
    y = y * f - 2.4999993993e-1
    y = y * f + 3.3333331174e-1
    square = f * f
    e = exponent.to(tl.float32)
    y = y * f * square + e * _LN2_LOW - 0.5 * square
    return (f + y) + e * _LN2_HIGH


@triton.jit
def power(base, inverse, KIND: tl.constexpr):
    """``p = u ** (1 / epsilon)``, ``p / u`` and log2 p, all 0 outside the support.

    ``u = 1 + base``; ``inverse`` is log2(e) / epsilon, of a shape that broadcasts to that of
    ``base``. With :data:`ANY`, a subnormal p becomes 0.
    """
    outside = base <= -1.0
    inner = tl.where(outside, 0.0, base)
    u = 1.0 + inner
    logs = log_of(u, inner) * inverse
    if KIND == HALF:
        slope = tl.where(outside, 0.0, u)
        p = slope * slope
    elif KIND == ONE:
        slope = tl.where(outside, 0.0, 1.0)
        p = tl.where(outside, 0.0, u)
    else:
        p = tl.where(outside | (logs < -126.0), 0.0, tl.exp2(logs))
        slope = p / u
    return p, slope, logs


@triton.jit
def sum_keys(x):
    """Sum of each row of a tile ``(rows, keys)``, or ``(chunks, rows, lanes)`` as in rows."""
    if len(x.shape) == 3:
        return tl.sum(tl.sum(x, axis=0), axis=1)
    else:
        return tl.sum(x, axis=1)


@triton.jit
def max_keys(x):
    """Largest number of each row of a tile, as :func:`sum_keys`."""
    if len(x.shape) == 3:
        return tl.max(tl.max(x, axis=0), axis=1)
    else:
        return tl.max(x, axis=1)


@triton.jit
def numbers_of(scores):
    """Scores with ``-inf`` in place of NaN and ``+inf``, and 1 for each row that has any."""
    bad = (scores != scores) | (scores == float("inf"))
    return tl.where(bad, float("-inf"), scores), max_keys(bad.to(tl.int32))


@triton.jit
def or_without(broken, epsilon, top):
    """``broken``, and 1 also for a row whose epsilon is NaN, unless its keys are all masked."""
    return broken | ((epsilon != epsilon) & (top > float("-inf"))).to(tl.int32)


@triton.jit
def share_of(total, broken):
    """The factor that normalises a row with the sum ``total``; NaN if the row is broken."""
    return tl.where(broken > 0, float("nan"), 1.0 / tl.where(total > 0.0, total, 1.0))


@triton.jit
def of_rows(value, tile):
    """One number per row, in a shape that broadcasts to that of the tile."""
    if len(tile.shape) == 3:
        return value[None, :, None]
    else:
        return value[:, None]


@triton.jit
def power_at(tau, distance, epsilon, inverse, KIND: tl.constexpr):
    """:func:`power` of a tile of distances to the largest scores, at the thresholds of its rows."""
    # In one expression, which a GPU rounds only once
    base = distance * of_rows(epsilon, distance) - of_rows(tau, distance)
    return power(base, of_rows(inverse, distance), KIND)


@triton.jit
def newton_step(tau, total, slope, epsilon, KIND: tl.constexpr):
    """The next threshold of each row, and 1 if a row still moves, else 0.

    ``tau`` is epsilon times (threshold - largest score); ``total`` and ``slope`` are the sums of p
    and p / u from :func:`power` there.
    """
    # A row with every key masked sums to 0 and stays
    excess = tl.maximum(total, 1.0)
    if KIND == HALF:
        change = excess - tl.sqrt(excess)
    elif KIND == ONE:
        change = excess - 1.0
    else:
        x = epsilon * log_of(excess, excess - 1.0)
        # 1 - exp(-x), whose closed form loses digits near 0
        series = 1.0 - x * (0.5 - x * (0.16666667 - x * (0.041666668 - x * 0.008333334)))
        change = excess * tl.where(x < 0.25, x * series, 1.0 - tl.exp(-x))
    moved = tau + change / tl.where(slope > 0.0, slope, 1.0)
    far = (total > 1.0 + TOLERANCE) & (moved > tau)
    return tl.where(far, moved, tau), tl.max(far.to(tl.int32), axis=0)


@triton.jit
def solve(distance, epsilon, inverse, KIND: tl.constexpr):
    """Find the thresholds of whole rows.

    Newton's iteration, started at the largest score, climbs to the threshold and never passes it
    (see :func:`fairseq_entmax.kernels.torch_ops.probabilities`). ``distance`` is a score less
    the largest of its row: ``-inf`` where there is no key, never NaN. Returns ``tau``, the tile of
    probabilities, and the sums of its rows, which are 1 up to rounding, or 0.
    """
    tau = tl.zeros_like(epsilon)
    total = tl.zeros_like(epsilon)
    p = tl.zeros_like(distance)
    moving = 1
    step = 0
    while (moving > 0) & (step < MOST_STEPS):
        p, slopes, _ = power_at(tau, distance, epsilon, inverse, KIND)
        total = sum_keys(p)
        tau, moving = newton_step(tau, total, sum_keys(slopes), epsilon, KIND)
        step += 1
    return tau, p, total


@triton.jit
def phi(x, exp_minus_x):
    """``(exp(-x) - 1 + x) / x**2`` for x <= 0, 1/2 at 0."""
    y = x * -2.5052108e-8 + 2.7557319e-7
    y = y * x - 2.7557319e-6
    y = y * x + 2.4801587e-5
    y = y * x - 1.9841270e-4
    y = y * x + 1.3888889e-3
    y = y * x - 8.3333333e-3
    y = y * x + 4.1666667e-2
    y = y * x - 1.6666667e-1
    y = y * x + 0.5
    near = x > -1.0
    return tl.where(near, y, (exp_minus_x - 1.0 + x) / tl.where(near, 1.0, x * x))


@triton.jit
def alpha_sums(p, logs, exp_minus_x, centred, epsilon):
    """The five sums of :func:`alpha_gradient`, over the keys of a tile.

    ``logs`` is log p, 0 outside the support; ``exp_minus_x`` is ``p ** -epsilon``, finite outside
    it too; ``centred`` is the incoming gradient less its mean under p.
    """
    epsilon = of_rows(epsilon, p)
    weight = logs * logs * phi(epsilon * logs, exp_minus_x) * p
    moved = p * centred
    return (
        -sum_keys(p * logs),
        sum_keys(weight),
        sum_keys(weight * centred),
        sum_keys(moved),
        sum_keys(moved * logs),
    )


@triton.jit
def no_alpha_sums(like):
    """Five zeros for each row, for :func:`add_alpha_sums`."""
    zero = tl.zeros_like(like)
    return zero, zero, zero, zero, zero


@triton.jit
def add_alpha_sums(
    entropy, mean_weight, from_weight, from_mean, from_log, p, logs, exp_minus_x, centred, epsilon
):
    """Add the :func:`alpha_sums` of another tile to the five sums so far."""
    a, b, c, d, e = alpha_sums(p, logs, exp_minus_x, centred, epsilon)
    return entropy + a, mean_weight + b, from_weight + c, from_mean + d, from_log + e


@triton.jit
def alpha_gradient(entropy, mean_weight, from_weight, from_mean, from_log, epsilon):
    """Gradient of alpha for each row, as in :mod:`fairseq_entmax.kernels.torch_ops`."""
    above = 1.0 + epsilon * entropy
    result = mean_weight * (from_mean - epsilon * from_log) - above * from_weight
    return result / (above + epsilon * epsilon * mean_weight)
