"""Alpha-entmax attention as a whole: scores and probabilities never reach memory.

    output = alpha-entmax(scale * query key^T + masks) value

The forward pass finds the threshold of a row in registers if all of its keys fit there. Longer rows
are recomputed, block by block, in each step of Newton's iteration. Kept are the output, the largest
score and threshold of each row, and which units of queries and keys have support. From these the
backward pass recomputes the probabilities where there is support: once for the gradients of queries
and alpha, once for those of keys and values. No sum depends on the order in which programs run, so
results are reproducible. Dropout is drawn again wherever it is needed.

Products of half-precision numbers are summed in float32. Causal attention reads no mask of the
future, and does not compute what it would hide.

Source:
    Correia, Niculae, Martins 2019, *Adaptively Sparse Transformers*, eq. 5 to 7 and
    Proposition 1; recomputing blocks of scores: Dao et al. 2022, *FlashAttention*.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from fairseq_entmax.kernels import attention as of_any
from fairseq_entmax.kernels.attention import Backend, Inputs
from fairseq_entmax.kernels.inputs import ScoreSettings, dense_rows, positions_first
from fairseq_entmax.kernels.triton import attention_dropout as dropout
from fairseq_entmax.kernels.triton import attention_tiles as tiles
from fairseq_entmax.kernels.triton.attention_backward import (
    backward_keys_kernel,
    backward_queries_kernel,
)
from fairseq_entmax.kernels.triton.attention_forward import forward_kernel
from fairseq_entmax.kernels.triton.attention_support import units
from fairseq_entmax.kernels.triton.math import kind_of
from fairseq_entmax.kernels.triton.rows import INTERPRETED, on_device


def supports(query: Tensor, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether :func:`attention` takes queries on this device, with this dtype and head size."""
    return (
        (query.is_cuda or (INTERPRETED and query.device.type == "cpu"))
        and 1 <= head_dim <= tiles.LARGEST_HEAD_DIM
        and (INTERPRETED or tiles.has_room(query.device, tiles.block_of(head_dim) * dtype.itemsize))
    )


def _forward(inputs: Inputs, keeps: bool) -> tuple[Tensor, Sequence[Tensor]]:
    query, key, value = inputs[:3]
    padding, mask = _masks(inputs.settings)
    values = _epsilon_of_heads(inputs.epsilon, query)
    output = positions_first(query)
    statistics = support = None
    if keeps:
        shape = (*query.shape[:2], 2, query.size(2))
        statistics = query.new_empty(shape, dtype=torch.float32)
        shape = (*query.shape[:2], units(query.size(2)), units(key.size(2)))
        support = query.new_empty(shape, dtype=torch.uint8)
    if output.numel() and key.size(2):
        tile = tiles.forward_tile(*_sizes(query, key))
        if support is not None and inputs.settings.causal:
            support.zero_()  # the kernel skips blocks that are hidden entirely
        blocks = triton.cdiv(query.size(2), tile.queries)
        with on_device(query):
            forward_kernel[(blocks * query.shape[:2].numel(),)](
                *(query, key, value, values, padding, mask, output, statistics, support),
                *_numbers(inputs.settings, query, key, value, values, mask),
                **_constants(inputs, tile),
                WHOLE=tile.whole,
            )
    else:
        output.zero_()
    return output, () if statistics is None or support is None else (statistics, support)


def _masks(settings: ScoreSettings) -> tuple[Tensor | None, Tensor | None]:
    """The masks as the kernels read them."""
    padding, mask = settings.key_padding_mask, settings.attn_mask
    return (
        None if padding is None else padding.contiguous().view(torch.uint8),
        None if mask is None else dense_rows(mask),
    )


def _backward(
    inputs: Inputs, output: Tensor, saved: Sequence[Tensor], grad: Tensor, wanted: Sequence[bool]
) -> Sequence[Tensor | None]:
    query, key, value = (dense_rows(tensor) for tensor in inputs[:3])
    padding, mask = _masks(inputs.settings)
    values = _epsilon_of_heads(inputs.epsilon, query)
    for_epsilon = wanted[3]
    # In the memory layout in which the output was allocated
    grad = grad.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
    output = output.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
    statistics, support = (tensor.contiguous() for tensor in saved)
    grads = [positions_first(tensor) for tensor in (query, key, value)]
    rows = query.new_zeros(query.shape[:3], dtype=torch.float32) if for_epsilon else None
    if output.numel() and key.size(2):
        middle = query.new_empty(query.shape[:3], dtype=torch.float32)
        pointers = (query, key, value, values, padding, mask)
        numbers = _numbers(inputs.settings, query, key, value, values, mask)
        tile = tiles.backward_tile(*_sizes(query, key))
        constants = _constants(inputs, tile)
        pairs = query.shape[:2].numel()
        with on_device(query):
            backward_queries_kernel[(triton.cdiv(query.size(2), tile.queries) * pairs,)](
                *pointers, output, statistics, support, grad, middle, grads[0], rows, *numbers,
                FOR_ALPHA=for_epsilon, **constants,
            )  # fmt: skip
            if any(wanted[1:3]):
                backward_keys_kernel[(triton.cdiv(key.size(2), tile.keys) * pairs,)](
                    *pointers, statistics, support, grad, middle, *grads[1:], *numbers, **constants
                )
    else:
        grads = [tensor.zero_() for tensor in grads]
    if rows is None or not isinstance(inputs.epsilon, Tensor):
        return *grads, None
    of_heads = rows.sum((0, 2), dtype=torch.float64).sum_to_size(inputs.epsilon.shape)
    return *grads, of_heads.to(inputs.epsilon.dtype)


def _sizes(query: Tensor, key: Tensor) -> tuple[int, int, int, int]:
    """What decides the tile: numbers of queries and keys, head size, bytes of a number."""
    return query.size(2), key.size(2), query.size(3), query.element_size()


def _epsilon_of_heads(epsilon: float | Tensor, query: Tensor) -> Tensor:
    if isinstance(epsilon, Tensor):
        return epsilon.detach().reshape(-1).to(torch.float32).contiguous()
    return query.new_full((1,), epsilon, dtype=torch.float32)


def _numbers(
    settings: ScoreSettings,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    epsilon: Tensor,
    attn_mask: Tensor | None,
) -> tuple[int | float, ...]:
    """The numbers that every kernel takes after its pointers."""
    batch, heads = query.shape[:2]
    return (
        *query.stride()[:3],
        *key.stride()[:3],
        *value.stride()[:3],
        int(epsilon.numel() > 1),
        0 if attn_mask is None else attn_mask.stride(0),
        heads,
        batch * heads,
        query.size(2),
        key.size(2),
        float(settings.scale),
        *dropout.numbers_of(settings.dropout, settings.seed),
    )


def _constants(inputs: Inputs, tile: tiles.Tile) -> dict[str, Any]:
    """The constants that every kernel is compiled for."""
    head_dim, settings = inputs.query.size(3), inputs.settings
    exact = torch.get_float32_matmul_precision() == "highest"
    return {
        "KIND": kind_of(inputs.epsilon),
        "DROPOUT": settings.dropout > 0,
        "CAUSAL": settings.causal,
        # Three products of 19-bit numbers are as exact as one of float32
        "PRECISION": "ieee" if INTERPRETED else "tf32x3" if exact else "tf32",
        "HEAD_DIM": head_dim,
        "BLOCK_D": tiles.block_of(head_dim),
        "BLOCK_M": tile.queries,
        "BLOCK_N": tile.keys,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }


# As fairseq_entmax.kernels.attention.attention
attention = functools.partial(of_any.attention, Backend(_forward, _backward, needs_output=True))
