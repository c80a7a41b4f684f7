"""Where attention has support, so that the backward kernels can skip the rest.

The forward kernel stores a byte for each :data:`UNIT` queries by as many keys, ``(batch, heads,
units of queries, units of keys)``: not 0 if a probability may be above 0. All tiles are made of
whole units, so both backward kernels can read it, whatever their tiles. Elsewhere they would add
exact zeros, so skipping changes no bit of finite gradients.

Source:
    The block masks of Gonçalves, Treviso, Martins 2025, *AdaSplash: Adaptive Sparse Flash
    Attention*, here in units that do not depend on the tiles.
"""

from __future__ import annotations

import triton
import triton.language as tl

# The smallest side of a tile
UNIT = tl.constexpr(16)
# The flags of so many blocks are read at a time; the bit above them marks their end
_BITS, _END = tl.constexpr(16), tl.constexpr(2**16)
# How far below its threshold a key still counts as support, in units of u = p ** epsilon, and how
# much further per unit of the largest score. The backward kernels sum scores in another order, so a
# key on the edge may have a probability only there; rounding moves u by far less than this.
_SLACK = tl.constexpr(2.0**-10)
_SLACK_OF_SCORES = tl.constexpr(2.0**-16)


def units(length: int) -> int:
    """The number of units that so many queries or keys take."""
    return (length + UNIT.value - 1) // UNIT.value


@triton.jit
def near_support(distance, tau, epsilon, top):
    """Which keys of a tile ``(queries, keys)`` may have a probability above 0.

    ``distance`` is the score less the largest of its row, ``top``; the others are ``(queries,)``.
    """
    slack = _SLACK + tl.abs(top) * epsilon * _SLACK_OF_SCORES
    return distance * epsilon[:, None] - tau[:, None] > -1.0 - slack[:, None]


@triton.jit
def store_support(
    support_ptr, near, first, start, queries, keys, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """Store the flags of ``near``, a tile of queries from ``first`` and keys from ``start`` on."""
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
    """Which of the next 16 blocks have support together with a block: a bit for each, lowest first.

    One more bit is set above these, so that 1 is left once all have been shifted out. ``first`` is
    where the block begins, ``length`` how many queries (or keys) there are, and ``step`` the bytes
    between the flags of units; ``start``, ``others`` and ``other_step`` are those of the 16 blocks.
    """
    EACH: tl.constexpr = BLOCK_OTHER // UNIT
    unit = first // UNIT + tl.arange(0, BLOCK // UNIT)
    other = start // UNIT + tl.arange(0, _BITS * EACH)
    inside = (unit < tl.cdiv(length, UNIT))[:, None] & (other < tl.cdiv(others, UNIT))[None, :]
    at = unit.to(tl.int64)[:, None] * step + other.to(tl.int64)[None, :] * other_step
    flags = tl.max(tl.load(support_ptr + at, mask=inside, other=0).to(tl.int32), axis=0)
    flags = tl.max(tl.reshape(flags, [_BITS, EACH]), axis=1)
    return tl.sum(flags << tl.arange(0, _BITS), axis=0) + _END
