"""The backward kernels of :mod:`fairseq_entmax.kernels.triton.attention`.

Their arguments are described in :mod:`fairseq_entmax.kernels.triton.attention_forward`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fairseq_entmax.kernels.triton.attention_forward import (
    NOT_SPECIALIZED,
    dot,
    epsilon_of,
    factors_of,
    load,
    place_of,
    scores_of,
    store,
)
from fairseq_entmax.kernels.triton.attention_support import UNIT, support_of_blocks
from fairseq_entmax.kernels.triton.math import (
    LOG2_E,
    add_alpha_sums,
    alpha_gradient,
    any_for,
    no_alpha_sums,
    power,
    sum_keys,
)

_LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def backward_queries_kernel(
    query_ptr, key_ptr, value_ptr, epsilon_ptr, padding_ptr, mask_ptr,
    output_ptr, statistics_ptr, support_ptr, grad_ptr, middle_ptr, grad_query_ptr, grad_alpha_ptr,
    query_batch, query_head, query_row, key_batch, key_head, key_row,
    value_batch, value_head, value_row, epsilon_head, mask_row,
    heads, pairs, queries, keys, scale, seed_low, seed_high, least, keep_scale,
    KIND: tl.constexpr, DROPOUT: tl.constexpr, FOR_ALPHA: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Gradients of ``BLOCK_M`` queries and, one number per row, of alpha.

    Also stores the ``middle`` of each row for :func:`backward_keys_kernel`: the mean of the
    probabilities' gradient weighted by s = p / u, which eq. 7 of Correia et al. 2019 subtracts.
    """
    pair, batch, head, first = place_of(heads, queries, BLOCK_M)
    query_ptr += batch * query_batch + head * query_head
    key_ptr += batch * key_batch + head * key_head
    value_ptr += batch * value_batch + head * value_head
    if padding_ptr is not None:
        padding_ptr += batch * keys
    width = tl.cdiv(keys, UNIT)
    support_ptr += pair * tl.cdiv(queries, UNIT) * width
    position = pair * HEAD_DIM
    stride = pairs * HEAD_DIM
    row = first + tl.arange(0, BLOCK_M)
    at = pair * queries + row
    epsilon = epsilon_of(epsilon_ptr, epsilon_head, head, BLOCK_M, KIND)
    # NaN if epsilon is, else 0. A row with such an epsilon has a NaN threshold, or no key
    nothing = epsilon - epsilon
    epsilon = any_for(epsilon)
    query = load(query_ptr, row, query_row, queries, HEAD_DIM, BLOCK_D)
    grad = load(grad_ptr + position, row, stride, queries, HEAD_DIM, BLOCK_D)
    output = load(output_ptr + position, row, stride, queries, HEAD_DIM, BLOCK_D)
    # The mean of the gradient under the probabilities. Subtracting it saves the digits that a
    # constant would cost, and lets one pass make the sums for alpha
    mean = tl.sum(output.to(tl.float32) * grad.to(tl.float32), axis=1)
    statistics_ptr += pair * 2 * queries + row
    top = tl.load(statistics_ptr, mask=row < queries, other=float("inf"))
    tau = tl.load(statistics_ptr + queries, mask=row < queries, other=0.0)
    # NaN if the threshold is
    inverse = LOG2_E / epsilon + (tau - tau)
    end = keys
    if CAUSAL:
        end = tl.minimum(keys, first + BLOCK_M + keys - queries)

    weights = tl.zeros([BLOCK_M], tl.float32)
    weighted = tl.zeros([BLOCK_M], tl.float32)
    # sum_j s_j g_j k_j and sum_j s_j k_j: how to combine them is known once both sums of s are
    with_grad = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    without = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    entropy, mean_weight, from_weight, from_mean, from_log = no_alpha_sums(mean)
    bits = 1
    for start in range(0, end, BLOCK_N):
        if bits <= 1:
            bits = support_of_blocks(
                support_ptr, first, queries, width, start, keys, 1, BLOCK_M, BLOCK_N
            )
        if bits & 1 != 0:
            column = start + tl.arange(0, BLOCK_N)
            key = load(key_ptr, column, key_row, keys, HEAD_DIM, BLOCK_D)
            value = load(value_ptr, column, value_row, keys, HEAD_DIM, BLOCK_D)
            scores = scores_of(
                query, key, row[:, None], column[None, :], scale, queries, keys,
                padding_ptr, mask_ptr, mask_row, CAUSAL, PRECISION,
            )  # fmt: skip
            base = (scores - top[:, None]) * epsilon[:, None] - tau[:, None]
            p, s, log2_p = power(base, inverse[:, None], KIND)
            factors = factors_of(
                pair, row[:, None], column[None, :], queries, keys,
                seed_low, seed_high, least, keep_scale, DROPOUT,
            )  # fmt: skip
            centred = dot(grad, tl.trans(value), PRECISION) * factors - mean[:, None]
            moved = s * centred
            weights += sum_keys(s)
            weighted += sum_keys(moved)
            with_grad += dot(moved.to(key.dtype), key, PRECISION)
            without += dot(s.to(key.dtype), key, PRECISION)
            if FOR_ALPHA:
                logs = tl.where(p == 0.0, 0.0, log2_p * _LN_2)
                inverse_power = 1.0 / tl.where(p == 0.0, 1.0, 1.0 + base)
                entropy, mean_weight, from_weight, from_mean, from_log = add_alpha_sums(
                    entropy, mean_weight, from_weight, from_mean, from_log,
                    p, logs, inverse_power, centred, epsilon,
                )  # fmt: skip
        bits = bits >> 1
    middle = weighted / tl.where(weights == 0.0, 1.0, weights)
    grad_query = (with_grad - middle[:, None] * without) * scale
    store(grad_query_ptr + position, grad_query, row, stride, queries, HEAD_DIM, BLOCK_D)
    tl.store(middle_ptr + at, middle + mean, mask=row < queries)
    if FOR_ALPHA:
        result = alpha_gradient(entropy, mean_weight, from_weight, from_mean, from_log, epsilon)
        tl.store(grad_alpha_ptr + at, result + nothing, mask=row < queries)


@triton.jit(do_not_specialize=NOT_SPECIALIZED)
def backward_keys_kernel(
    query_ptr, key_ptr, value_ptr, epsilon_ptr, padding_ptr, mask_ptr,
    statistics_ptr, support_ptr, grad_ptr, middle_ptr, grad_key_ptr, grad_value_ptr,
    query_batch, query_head, query_row, key_batch, key_head, key_row,
    value_batch, value_head, value_row, epsilon_head, mask_row,
    heads, pairs, queries, keys, scale, seed_low, seed_high, least, keep_scale,
    KIND: tl.constexpr, DROPOUT: tl.constexpr,
    CAUSAL: tl.constexpr, PRECISION: tl.constexpr, HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Gradients of ``BLOCK_N`` keys and values. Tiles are ``(keys, queries)``."""
    pair, batch, head, first = place_of(heads, keys, BLOCK_N)
    query_ptr += batch * query_batch + head * query_head
    key_ptr += batch * key_batch + head * key_head
    value_ptr += batch * value_batch + head * value_head
    if padding_ptr is not None:
        padding_ptr += batch * keys
    width = tl.cdiv(keys, UNIT)
    support_ptr += pair * tl.cdiv(queries, UNIT) * width
    position = pair * HEAD_DIM
    stride = pairs * HEAD_DIM
    statistics_ptr += pair * 2 * queries
    middle_ptr += pair * queries
    column = first + tl.arange(0, BLOCK_N)
    epsilon = any_for(epsilon_of(epsilon_ptr, epsilon_head, head, BLOCK_M, KIND))
    key = load(key_ptr, column, key_row, keys, HEAD_DIM, BLOCK_D)
    value = load(value_ptr, column, value_row, keys, HEAD_DIM, BLOCK_D)
    # Queries before this one see no key of the block
    begin = 0
    if CAUSAL:
        begin = tl.maximum(first - (keys - queries), 0) // BLOCK_M * BLOCK_M

    grad_key = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    grad_value = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    bits = 1
    for start in range(begin, queries, BLOCK_M):
        if bits <= 1:
            bits = support_of_blocks(
                support_ptr, first, keys, 1, start, queries, width, BLOCK_N, BLOCK_M
            )
        if bits & 1 != 0:
            row = start + tl.arange(0, BLOCK_M)
            query = load(query_ptr, row, query_row, queries, HEAD_DIM, BLOCK_D)
            grad = load(grad_ptr + position, row, stride, queries, HEAD_DIM, BLOCK_D)
            top = tl.load(statistics_ptr + row, mask=row < queries, other=float("inf"))
            tau = tl.load(statistics_ptr + queries + row, mask=row < queries, other=0.0)
            middle = tl.load(middle_ptr + row, mask=row < queries, other=0.0)
            scores = scores_of(
                key, query, row[None, :], column[:, None], scale, queries, keys,
                padding_ptr, mask_ptr, mask_row, CAUSAL, PRECISION,
            )  # fmt: skip
            base = (scores - top[None, :]) * epsilon[None, :] - tau[None, :]
            inverse = LOG2_E / epsilon + (tau - tau)
            p, s, _ = power(base, inverse[None, :], KIND)
            factors = factors_of(
                pair, row[None, :], column[:, None], queries, keys,
                seed_low, seed_high, least, keep_scale, DROPOUT,
            )  # fmt: skip
            grad_value += dot((p * factors).to(grad.dtype), grad, PRECISION)
            grad_probs = dot(value, tl.trans(grad), PRECISION) * factors
            moved = s * (grad_probs - middle[None, :])
            grad_key += dot(moved.to(query.dtype), query, PRECISION)
        bits = bits >> 1
    store(grad_key_ptr + position, grad_key * scale, column, stride, keys, HEAD_DIM, BLOCK_D)
    store(grad_value_ptr + position, grad_value, column, stride, keys, HEAD_DIM, BLOCK_D)
