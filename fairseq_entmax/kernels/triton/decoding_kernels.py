"""The kernel of :mod:`fairseq_entmax.kernels.triton.decoding`.

A program has one head of one sentence. Its scores stay in registers, a chunk of keys after the
other is multiplied with the query, and of the values only those in the support are read. A tile of
queries for the tensor cores would be empty but for one row.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fairseq_entmax.kernels.triton.attention_forward import epsilon_of, load, position_and_inside
from fairseq_entmax.kernels.triton.math import (
    ANY,
    LOG2_E,
    any_for,
    at_least,
    max_keys,
    numbers_of,
    of_rows,
    or_without,
    share_of,
    solve,
)


@triton.jit(do_not_specialize=["keys"])
def step_kernel(
    query_ptr, key_ptr, value_ptr, epsilon_ptr, padding_ptr, output_ptr, probs_ptr,
    query_batch, query_head, key_batch, key_head, key_row,
    value_batch, value_head, value_row, epsilon_head, heads, keys, scale, epsilon_number,
    KIND: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    CHUNKS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Output of one query; rows of scores are ``(CHUNKS, 1, LANES)``.

    The output lies in memory as ``(batch, heads, head_dim)``, the probabilities as ``(batch, heads,
    keys)``. Epsilon is the number where there is no ``epsilon_ptr``.
    """
    pair = tl.program_id(0).to(tl.int64)
    batch, head = pair // heads, pair % heads
    key_ptr += batch * key_batch + head * key_head
    value_ptr += batch * value_batch + head * value_head
    if padding_ptr is not None:
        padding_ptr += batch * keys
    dim = tl.arange(0, BLOCK_D)
    lane = tl.arange(0, LANES)
    chunk = tl.arange(0, CHUNKS)[:, None, None]
    query_ptr += batch * query_batch + head * query_head
    query = tl.load(query_ptr + dim, mask=dim < HEAD_DIM, other=0.0).to(tl.float32)

    scores = tl.full([CHUNKS, 1, LANES], float("-inf"), tl.float32)
    for start in range(0, keys, LANES):
        column = start + lane
        key = load(key_ptr, column, key_row, keys, HEAD_DIM, BLOCK_D).to(tl.float32)
        of_chunk = tl.sum(key * query[None, :], axis=1) * scale
        visible = column < keys
        if padding_ptr is not None:
            visible = visible & (tl.load(padding_ptr + column, mask=visible, other=1) == 0)
        of_chunk = tl.where(visible, of_chunk, float("-inf"))
        scores = tl.where(chunk == start // LANES, of_chunk[None, None, :], scores)

    if KIND == ANY and epsilon_ptr is None:
        given = tl.zeros([1], tl.float32) + at_least(epsilon_number)
    else:
        given = epsilon_of(epsilon_ptr, epsilon_head, head, 1, KIND)
    epsilon = any_for(given)
    scores, broken = numbers_of(scores)
    top = max_keys(scores)
    broken = or_without(broken, given, top)
    # In a row with every key masked all differences are -inf
    top = tl.where(top == float("-inf"), float("inf"), top)
    # A tensor times a constant: of the quotient the interpreter makes a constant
    inverse = (1.0 / epsilon) * LOG2_E
    _, p, total = solve(scores - of_rows(top, scores), epsilon, inverse, KIND)
    p *= of_rows(share_of(total, broken), p)
    if probs_ptr is not None:
        column = chunk * LANES + lane[None, None, :]
        tl.store(probs_ptr + pair * keys + column, p, mask=column < keys)

    output = tl.zeros([BLOCK_D], tl.float32)
    for start in range(0, keys, LANES):
        # The sum of one number and zeros
        weights = tl.sum(tl.sum(tl.where(chunk == start // LANES, p, 0.0), axis=0), axis=0)
        at, inside = position_and_inside(start + lane, value_row, keys, HEAD_DIM, BLOCK_D)
        inside = inside & (weights != 0.0)[:, None]
        value = tl.load(value_ptr + at, mask=inside, other=0.0).to(tl.float32)
        output += tl.sum(value * weights[:, None], axis=0)
    output_ptr += pair * HEAD_DIM + dim
    tl.store(output_ptr, output.to(query_ptr.dtype.element_ty), mask=dim < HEAD_DIM)
