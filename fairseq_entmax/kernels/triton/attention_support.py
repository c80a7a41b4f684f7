"""Where attention has support: what the backward kernels need not look at.

The forward kernel keeps a byte for each :data:`UNIT` queries by as many keys, ``(batch, heads,
units of queries, units of keys)``: not 0 where a probability may be above 0. All tiles are made
of whole units, so both backward kernels read it, whatever tiles they have. Elsewhere they would
add exact zeros: what they skip changes no bit of finite gradients.

Source:
    The masks of blocks of Gonçalves, Treviso, Martins 2025, *AdaSplash: Adaptive Sparse Flash
    Attention*, here in units that do not depend on the tiles.
"""

from __future__ import annotations

import triton
import triton.language as tl

# The least side of a tile
UNIT = tl.constexpr(16)
# So many blocks are read of at a time; the bit above theirs
_BITS, _END = tl.constexpr(16), tl.constexpr(2**16)
# How far below its threshold a key counts as support yet, in units of u = p ** epsilon, and how
# much further for each unit of the largest score. The backward kernels sum scores in another order,
# so a key on the edge may have a probability there alone; rounding moves u by far less than this.
_SLACK = tl.constexpr(2.0**-10)
_SLACK_OF_SCORES = tl.constexpr(2.0**-16)


def units(length: int) -> int:
    """How many units there are along so many queries or keys."""
    return (length + UNIT.value - 1) // UNIT.value


@triton.jit
def near_support(distance, tau, epsilon, top):
    """Which keys of a tile ``(queries, keys)`` may have a probability above 0.

    ``distance`` is that to the largest score of the row, ``top``; the others are ``(queries,)`` too.
    """
    slack = _SLACK + tl.abs(top) * epsilon * _SLACK_OF_SCORES
    return distance * epsilon[:, None] - tau[:, None] > -1.0 - slack[:, None]


@triton.jit
def store_support(
    support_ptr, near, first, start, queries, keys, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Keep what is ``near`` of the tile of queries from ``first`` on and keys from ``start`` on."""
    ROWS: tl.constexpr = BLOCK_M // UNIT
    COLUMNS: tl.constexpr = BLOCK_N // UNIT
    flags = tl.reshape(near.to(tl.int32), [ROWS, UNIT, COLUMNS, UNIT])
    flags = tl.max(tl.max(flags, axis=3), axis=1)
    width = tl.cdiv(keys, UNIT)
    row = first // UNIT + tl.arange(0, ROWS)
    column = start // UNIT + tl.arange(0, COLUMNS)
    inside = (row < tl.cdiv(queries, UNIT))[:, None] & (column < width)[None, :]
    at = row.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(support_ptr + at, flags.to(tl.uint8), mask=inside)


@triton.jit
def support_of_blocks(
    support_ptr, first, length, step, start, others, other_step,
    BLOCK: tl.constexpr, BLOCK_OTHER: tl.constexpr,
):  # fmt: skip
    """Which of the next blocks have support together with a block: a bit for each, lowest first.

    One more is set above those, so that 1 is left once all have been shifted out. ``first``,
    ``length`` and ``step`` say where the block begins, of how many queries (or keys) it is a part,
    and how many bytes apart flags of units are; the others the same of the first of 16 blocks.
    """
    EACH: tl.constexpr = BLOCK_OTHER // UNIT
    unit = first // UNIT + tl.arange(0, BLOCK // UNIT)
    other = start // UNIT + tl.arange(0, _BITS * EACH)
    inside = (unit < tl.cdiv(length, UNIT))[:, None] & (other < tl.cdiv(others, UNIT))[None, :]
    at = unit.to(tl.int64)[:, None] * step + other.to(tl.int64)[None, :] * other_step
    flags = tl.max(tl.load(support_ptr + at, mask=inside, other=0).to(tl.int32), axis=0)
    flags = tl.max(tl.reshape(flags, [_BITS, EACH]), axis=1)
    return tl.sum(flags << tl.arange(0, _BITS), axis=0) + _END
