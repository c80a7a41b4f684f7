"""The proximal operator of total variation in Triton: each thread takes a row.

The algorithm is that of ``prox.h`` in the C kernel, which ``docs/structured.md`` describes.
"""

from __future__ import annotations

import triton
import triton.language as tl

# Rows of a program, which has one warp
ROWS = 32

_INFINITY = tl.constexpr(float("inf"))
# Replaces a strength of 0, which changes no score: with this one nothing is cut
_NEVER_CUT = tl.constexpr(3.4028235e38)
# Keys further below the largest are not in the support; they are raised, to keep sums finite
_LEAST = tl.constexpr(-1.8446743e19)


@triton.jit(do_not_specialize=["rows", "inner", "keys"])
def smooth_kernel(
    scores_ptr, strength_ptr, smooth_ptr, scratch_ptr, rows, keys, inner, entries,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """Smoothed scores less the largest score of their row, all NaN if the row is broken.

    Scores and smoothed scores are ``(rows, keys)``, contiguous; the scratch space has four arrays
    of ``keys + 1`` numbers for each row of a program.
    """
    row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    is_row = row < rows
    strength = tl.load(strength_ptr + row // inner % entries, mask=is_row, other=1.0)
    scores_ptr += row * keys
    smooth_ptr += row * keys
    # Rows lie side by side in these arrays, so that a warp reads neighbouring numbers
    width = tl.num_programs(0).to(tl.int64) * BLOCK
    size = width * (keys + 1)
    x_ptr = scratch_ptr + row  # distances to the largest score
    flux_ptr = x_ptr + size  # out of a key, clipped at all earlier keys
    enter_ptr = flux_ptr + size  # the flux into a key where a run starts, else NaN
    mean_ptr = enter_ptr + size  # of a run, where it starts

    top = tl.full([BLOCK], float("-inf"), tl.float32)
    broken = tl.full([BLOCK], 0, tl.int1)
    for i in range(0, keys):
        score = tl.load(scores_ptr + i, mask=is_row, other=0.0).to(tl.float32)
        bad = (score != score) | (score == _INFINITY)
        broken = broken | bad
        top = tl.maximum(top, tl.where(bad, float("-inf"), score))
    broken = broken | ((strength != strength) & (top > float("-inf")))
    unchanged = strength == 0.0
    bound = tl.where(strength > 0.0, strength, _NEVER_CUT)
    origin = tl.where(top > float("-inf"), top, 0.0)

    # Chains: masked keys are alone
    total = tl.zeros([BLOCK], tl.float32)
    count = tl.full([BLOCK], 1.0, tl.float32)
    masked_next = tl.full([BLOCK], 1, tl.int1)
    for j in range(0, keys):
        i = keys - 1 - j
        score = tl.load(scores_ptr + i, mask=is_row, other=0.0).to(tl.float32)
        value = tl.where((score != score) | (score == _INFINITY), 0.0, score - origin)
        value = tl.where((value > float("-inf")) & (value < _LEAST), _LEAST, value)
        tl.store(x_ptr + i * width, value)
        masked = value == float("-inf")
        ends = masked | masked_next
        tl.store(enter_ptr + (i + 1) * width, tl.where(ends, 0.0, float("nan")))
        tl.store(mean_ptr + (i + 1) * width, tl.div_rn(total, count))
        total = value + tl.where(ends, 0.0, total)
        count = 1.0 + tl.where(ends, 0.0, count)
        masked_next = masked
    tl.store(enter_ptr, tl.zeros([BLOCK], tl.float32))
    tl.store(mean_ptr, tl.div_rn(total, count))

    moving = 1
    step = 0
    while (moving > 0) & (step < keys):
        tl.debug_barrier()
        enter = tl.zeros([BLOCK], tl.float32)
        mean = tl.load(mean_ptr)
        for i in range(0, keys):
            following = tl.load(enter_ptr + (i + 1) * width)
            ends = following == following
            moved = enter + (mean - tl.load(x_ptr + i * width))
            tl.store(flux_ptr + i * width, moved)
            # Where a run ends, both bounds are the flux there, which also replaces a masked key's NaN
            low = tl.where(ends, following, -bound)
            high = tl.where(ends, following, bound)
            enter = tl.where(moved > low, moved, low)
            enter = tl.where(enter < high, enter, high)
            mean = tl.where(ends, tl.load(mean_ptr + (i + 1) * width), mean)
        tl.debug_barrier()
        # Runs are cut where keys above their mean meet keys below it
        total = tl.zeros([BLOCK], tl.float32)
        count = tl.full([BLOCK], 1.0, tl.float32)
        cuts = tl.full([BLOCK], 0, tl.int32)
        high_next = tl.full([BLOCK], 0, tl.int1)
        for j in range(0, keys):
            i = keys - 1 - j
            following = tl.load(enter_ptr + (i + 1) * width)
            flux = tl.load(flux_ptr + i * width)
            ends = following == following
            is_high = (flux < tl.where(ends, following, -bound)) | (
                (flux < tl.where(ends, following, bound)) & high_next
            )
            meets = (is_high != high_next) & (following != following)
            following = tl.where(meets, tl.where(is_high, -bound, bound), following)
            starts_next = ends | meets
            tl.store(enter_ptr + (i + 1) * width, following)
            tl.store(mean_ptr + (i + 1) * width, tl.div_rn(total - following, count))
            value = tl.load(x_ptr + i * width)
            total = value + tl.where(starts_next, following, total)
            count = 1.0 + tl.where(starts_next, 0.0, count)
            cuts = cuts | meets.to(tl.int32)
            high_next = is_high
        tl.store(mean_ptr, tl.div_rn(total, count))
        moving = tl.max(cuts, axis=0)
        step += 1
    tl.debug_barrier()
    mean = tl.zeros([BLOCK], tl.float32)
    for i in range(0, keys):
        enter = tl.load(enter_ptr + i * width)
        mean = tl.where(enter == enter, tl.load(mean_ptr + i * width), mean)
        smooth = tl.where(unchanged, tl.load(x_ptr + i * width), mean)
        tl.store(smooth_ptr + i, tl.where(broken, float("nan"), smooth), mask=is_row)
