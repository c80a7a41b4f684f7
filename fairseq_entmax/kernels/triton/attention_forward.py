"""The forward kernel of :mod:`fairseq_entmax.kernels.triton.attention`.

A program has a block of queries of one head of one sentence (or of keys, for their gradients),
and computes the scores that it needs itself, as often as it needs them. Matrices are
``(positions, head_dim)``. Queries, keys and values each have their own strides; tensors that are
allocated here lie in memory as ``(positions, batch, heads, head_dim)``. The statistics of a row of
scores are in float32.

Arguments of the forward and the backward kernels:

* ``*_batch, *_head, *_row``: strides of the inputs, in elements;
* ``heads``, ``pairs``: the number of heads of a sentence, and of all sentences together;
* ``padding_ptr``: ``(batch, keys)`` bytes, not 0 at padding; ``mask_ptr``: ``(queries, keys)``,
  added to the scores, with the stride ``mask_row``; either may be None;
* ``epsilon_head``: stride of ``epsilon_ptr``, 0 if all heads share one epsilon;
* ``statistics_ptr``: ``(batch, heads, 2, queries)``, the largest scores and the thresholds of rows;
  ``support_ptr``: see :mod:`fairseq_entmax.kernels.triton.attention_support`; the forward kernel
  takes None for both if no backward pass follows;
* ``seed_low, seed_high, least, keep_scale``: only read with ``DROPOUT``, see
  :mod:`fairseq_entmax.kernels.triton.attention_dropout`;
* ``PRECISION``: how float32 is multiplied; a product of halves is exact. With ``ieee`` all are
  multiplied as float32, for Triton's interpreter, which would multiply the bits of bfloat16.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fairseq_entmax.kernels.triton.attention_dropout import NAMES, drawn
from fairseq_entmax.kernels.triton.attention_support import UNIT, near_support, store_support
from fairseq_entmax.kernels.triton.math import (
    ANY,
    HALF,
    LOG2_E,
    MOST_STEPS,
    any_for,
    at_least,
    max_keys,
    newton_step,
    numbers_of,
    or_without,
    power_at,
    share_of,
    solve,
    sum_keys,
)

# Numbers that change from batch to batch. One compiled program serves all their values; otherwise
# Triton would compile one for multiples of 16, one for 1 and one for others, in all combinations.
# Strides are not among them, because they decide how wide a memory access can be
NOT_SPECIALIZED = [*NAMES, "pairs", "queries", "keys"]


@triton.jit
def place_of(heads, length, BLOCK: tl.constexpr):
    """A program's pair of sentence and head, its sentence, its head, and where its block begins."""
    blocks = tl.cdiv(length, BLOCK)
    pair = tl.program_id(0) // blocks
    first = tl.program_id(0) % blocks * BLOCK
    return pair.to(tl.int64), (pair // heads).to(tl.int64), (pair % heads).to(tl.int64), first


@triton.jit
def epsilon_of(epsilon_ptr, epsilon_head, head, SIZE: tl.constexpr, KIND: tl.constexpr):
    """Epsilon of the head, repeated for ``SIZE`` rows; never 0. NaN stays NaN."""
    if KIND == ANY:
        epsilon = at_least(tl.load(epsilon_ptr + head * epsilon_head))
        return tl.zeros([SIZE], tl.float32) + epsilon
    elif KIND == HALF:
        return tl.full([SIZE], 0.5, tl.float32)
    else:
        return tl.full([SIZE], 1.0, tl.float32)


@triton.jit
def position_and_inside(position, stride, positions, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """Where the numbers of a block are in memory, and which of them exist."""
    column = tl.arange(0, BLOCK_D)
    inside = (position < positions)[:, None] & (column < HEAD_DIM)[None, :]
    return position.to(tl.int64)[:, None] * stride + column[None, :], inside


@triton.jit
def load(pointer, position, stride, positions, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr):
    """The block, ``(positions of the block, BLOCK_D)``, with zeros outside the matrix."""
    at, inside = position_and_inside(position, stride, positions, HEAD_DIM, BLOCK_D)
    return tl.load(pointer + at, mask=inside, other=0.0)


@triton.jit
def store(
    pointer, values, position, stride, positions, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr
):
    at, inside = position_and_inside(position, stride, positions, HEAD_DIM, BLOCK_D)
    tl.store(pointer + at, values.to(pointer.dtype.element_ty), mask=inside)


@triton.jit
def dot(left, right, PRECISION: tl.constexpr):
    if PRECISION == "ieee":
        left, right = left.to(tl.float32), right.to(tl.float32)
    return tl.dot(left, right, input_precision=PRECISION)


@triton.jit
def scores_of(
    left, right, row, key, scale, queries, keys, padding_ptr, mask_ptr, mask_row,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """The masked scores: ``-inf`` at a key that a query does not see.

    ``left`` are queries and ``right`` keys, ``row`` is ``(rows, 1)`` and ``key`` ``(1, keys)``;
    or all are swapped, for the transpose. Padding is that of the sentence.
    """
    scores = dot(left, tl.trans(right), PRECISION) * scale
    visible = key < keys
    if mask_ptr is not None:
        at = row.to(tl.int64) * mask_row + key
        added = tl.load(mask_ptr + at, mask=visible & (row < queries), other=0.0).to(tl.float32)
        # A masked key stays masked even if its score is NaN
        visible = visible & (added != float("-inf"))
        scores += added
    if padding_ptr is not None:
        visible = visible & (tl.load(padding_ptr + key, mask=visible, other=1) == 0)
    if CAUSAL:
        visible = visible & (key <= row + (keys - queries))
    return tl.where(visible, scores, float("-inf"))


@triton.jit
def scores_from(
    start, query, row, key_ptr, key_row, scale, queries, keys, padding_ptr,
    mask_ptr, mask_row, CAUSAL: tl.constexpr, PRECISION: tl.constexpr,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The numbers of the keys in the block from ``start`` on, and their :func:`scores_of`."""
    column = start + tl.arange(0, BLOCK_N)
    key = load(key_ptr, column, key_row, keys, HEAD_DIM, BLOCK_D)
    scores = scores_of(
        query, key, row[:, None], column[None, :], scale, queries, keys,
        padding_ptr, mask_ptr, mask_row, CAUSAL, PRECISION,
    )  # fmt: skip
    return column, scores


@triton.jit
def factors_of(
    pair, row, column, queries, keys, seed_low, seed_high, least, keep_scale, DROPOUT: tl.constexpr
):
    """The dropout factors of a tile; ``row`` and ``column`` as row and key in :func:`scores_of`."""
    if DROPOUT:
        return drawn((pair * queries + row) * keys + column, seed_low, seed_high, least, keep_scale)
    else:
        return 1.0


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def forward_kernel(
    query_ptr, key_ptr, value_ptr, epsilon_ptr, padding_ptr, mask_ptr,
    output_ptr, statistics_ptr, support_ptr,
    query_batch, query_head, query_row, key_batch, key_head, key_row,
    value_batch, value_head, value_row, epsilon_head, mask_row,
    heads, pairs, queries, keys, scale, seed_low, seed_high, least, keep_scale,
    KIND: tl.constexpr, DROPOUT: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """Output of ``BLOCK_M`` queries, and what the backward kernels need to know of their rows.

    With ``WHOLE`` the ``BLOCK_N`` keys are all keys, and the threshold is found in registers.
    """
    pair, batch, head, first = place_of(heads, queries, BLOCK_M)
    query_ptr += batch * query_batch + head * query_head
    key_ptr += batch * key_batch + head * key_head
    value_ptr += batch * value_batch + head * value_head
    if padding_ptr is not None:
        padding_ptr += batch * keys
    if support_ptr is not None:
        support_ptr += pair * tl.cdiv(queries, UNIT) * tl.cdiv(keys, UNIT)
    row = first + tl.arange(0, BLOCK_M)
    given = epsilon_of(epsilon_ptr, epsilon_head, head, BLOCK_M, KIND)
    epsilon = any_for(given)
    inverse = LOG2_E / epsilon
    query = load(query_ptr, row, query_row, queries, HEAD_DIM, BLOCK_D)
    # No query of the block sees keys from here on
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, first + BLOCK_M + keys - queries)

    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    broken = tl.zeros([BLOCK_M], tl.int32)
    tau = tl.zeros([BLOCK_M], tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    if WHOLE:
        column, scores = scores_from(
            0, query, row, key_ptr, key_row, scale, queries, keys, padding_ptr,
            mask_ptr, mask_row, CAUSAL, PRECISION, HEAD_DIM, BLOCK_D, BLOCK_N,
        )  # fmt: skip
        scores, broken = numbers_of(scores)
        top = max_keys(scores)
        broken = or_without(broken, given, top)
        # In a row with every key masked all differences are -inf
        top = tl.where(top == float("-inf"), float("inf"), top)
        tau, p, total = solve(scores - top[:, None], epsilon, inverse, KIND)
        if support_ptr is not None:
            near = near_support(scores - top[:, None], tau, epsilon, top) | (broken > 0)[:, None]
            near = near & (row < queries)[:, None]
            store_support(support_ptr, near, first, 0, queries, keys, BLOCK_M, BLOCK_N)
        p *= factors_of(
            pair, row[:, None], column[None, :], queries, keys,
            seed_low, seed_high, least, keep_scale, DROPOUT,
        )  # fmt: skip
        value = load(value_ptr, column, value_row, keys, HEAD_DIM, BLOCK_D)
        output = dot(p.to(value.dtype), value, PRECISION)
    else:
        for start in range(0, end, BLOCK_N):
            _, scores = scores_from(
                start, query, row, key_ptr, key_row, scale, queries, keys, padding_ptr,
                mask_ptr, mask_row, CAUSAL, PRECISION, HEAD_DIM, BLOCK_D, BLOCK_N,
            )  # fmt: skip
            scores, is_broken = numbers_of(scores)
            broken = tl.maximum(broken, is_broken)
            top = tl.maximum(top, max_keys(scores))
        broken = or_without(broken, given, top)
        top = tl.where(top == float("-inf"), float("inf"), top)
        moving = 1
        step = 0
        # The last iteration finds that no row moves, so its sums are those of the result
        while (moving > 0) & (step < MOST_STEPS):
            total = tl.zeros([BLOCK_M], tl.float32)
            slope = tl.zeros([BLOCK_M], tl.float32)
            for start in range(0, end, BLOCK_N):
                _, scores = scores_from(
                    start, query, row, key_ptr, key_row, scale, queries, keys, padding_ptr,
                    mask_ptr, mask_row, CAUSAL, PRECISION, HEAD_DIM, BLOCK_D, BLOCK_N,
                )  # fmt: skip
                p, slopes, _ = power_at(tau, scores - top[:, None], epsilon, inverse, KIND)
                total += sum_keys(p)
                slope += sum_keys(slopes)
            total = tl.where(broken > 0, 0.0, total)
            tau, moving = newton_step(tau, total, slope, epsilon, KIND)
            step += 1
        total = tl.zeros([BLOCK_M], tl.float32)
        output = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
        for start in range(0, end, BLOCK_N):
            column, scores = scores_from(
                start, query, row, key_ptr, key_row, scale, queries, keys, padding_ptr,
                mask_ptr, mask_row, CAUSAL, PRECISION, HEAD_DIM, BLOCK_D, BLOCK_N,
            )  # fmt: skip
            p, _, _ = power_at(tau, scores - top[:, None], epsilon, inverse, KIND)
            total += sum_keys(p)
            if support_ptr is not None:
                near = near_support(scores - top[:, None], tau, epsilon, top)
                near = (near | (broken > 0)[:, None]) & (row < queries)[:, None]
                store_support(support_ptr, near, first, start, queries, keys, BLOCK_M, BLOCK_N)
            p *= factors_of(
                pair, row[:, None], column[None, :], queries, keys,
                seed_low, seed_high, least, keep_scale, DROPOUT,
            )  # fmt: skip
            value = load(value_ptr, column, value_row, keys, HEAD_DIM, BLOCK_D)
            output += dot(p.to(value.dtype), value, PRECISION)
    output *= share_of(total, broken)[:, None]
    position = pair * HEAD_DIM
    stride = pairs * HEAD_DIM
    store(output_ptr + position, output, row, stride, queries, HEAD_DIM, BLOCK_D)
    if statistics_ptr is not None:
        at = statistics_ptr + pair * 2 * queries + row
        tl.store(at, top, mask=row < queries)
        tl.store(at + queries, tl.where(broken > 0, float("nan"), tau), mask=row < queries)
