"""Attention with alpha-entmax in C, from scores to outputs and back, on the support alone.

The forward pass has one product of queries and keys, whose scores never reach memory. It keeps the
support: of each query the keys with a probability above zero, and these. The backward pass works
on that. What it keeps is as it is before dropout, which a backward pass finds again by its seed. The
C code is ``attention_rows.h``, for short rows ``attention_short.h`` and ``attention_dense.h``, and
``dropout.h``.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from fairseq_entmax.kernels import attention as of_any
from fairseq_entmax.kernels.attention import Backend, Inputs
from fairseq_entmax.kernels.dropout import least_kept
from fairseq_entmax.kernels.inputs import dense_rows, epsilon_of_heads, positions_first
from fairseq_entmax.kernels.native.library import address, check, lanes, library, threads_for

# For the support of so few keys there is room from the start: it need not be put together
FEW_KEYS = 160
# No more than twice what is needed stays, where it is for more keys of all queries than these
_MUCH = 2**16


# Matrices and Shape of attention.h, with the Dropout of dropout.h
_MATRICES = struct.Struct("P3l")
_SHAPE = struct.Struct("5lf3PlqIf")


def takes(query: Tensor, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether the kernels are for queries on this device, in this dtype: float32 on a CPU."""
    return query.device.type == "cpu" and dtype == torch.float32


def _matrices(tensor: Tensor) -> bytes:
    return _MATRICES.pack(tensor.data_ptr(), *tensor.stride()[:3])


def _shape(inputs: Inputs, epsilon: Tensor, padding: Tensor | None, mask: Tensor | None) -> bytes:
    """Sizes, parameters and masks. The tensors are to live as long as this is used."""
    query, settings = inputs.query, inputs.settings
    drops = (0, 0, 0.0)
    if settings.dropout:
        assert settings.seed is not None
        share = settings.dropout
        drops = (int(settings.seed), least_kept(share), 1 / (1 - share))
    return _SHAPE.pack(
        *(*query.shape[:3], inputs.key.size(2), query.size(3), settings.scale),
        *(address(epsilon), address(padding), address(mask), int(settings.causal), *drops),
    )


def _blocks_and_threads(query: Tensor, key: Tensor) -> tuple[int, int]:
    """How many times the queries of all heads fill the lanes, and threads for so much."""
    sentences, heads, queries, _ = query.shape
    blocks = sentences * heads * -(-queries // lanes())
    return blocks, threads_for(sentences * heads * queries * key.size(2), blocks)


def _forward(inputs: Inputs, keeps: bool) -> tuple[Tensor, Sequence[Tensor]]:
    """The output, and where each query's support begins and the last one's ends; keys, probabilities.

    The two are ``(2, keys of all)``, of which the bits of the second are of float32.
    """
    query, key, value, settings = inputs.query, inputs.key, inputs.value, inputs.settings
    output, epsilon = positions_first(query), epsilon_of_heads(inputs.epsilon, query.size(1))
    blocks, threads = _blocks_and_threads(query, key)
    starts = support = kept = None
    failed = 0
    if keeps:
        starts = torch.zeros(blocks * lanes() + 1, dtype=torch.int64)
        if key.size(2) <= FEW_KEYS:
            support = _empty(blocks * lanes() * key.size(2))
        else:
            kept = (ctypes.c_void_p * max(blocks, 1))()
    if output.numel():
        padding, mask = settings.key_padding_mask, settings.attn_mask
        padding = None if padding is None else padding.contiguous()
        mask = None if mask is None else mask.to(torch.float32).contiguous()
        shape = _shape(inputs, epsilon, padding, mask)
        failed = library().entmax_attention_forward(
            shape,
            *map(_matrices, (query, key, value, output)),
            *(address(starts), kept, *_addresses(support), threads),
        )
    if starts is None:
        check(failed)
        return output, ()
    if kept is not None:
        support = _empty(0 if failed else int(starts[-1]))
        places = (None, None) if failed else _addresses(support)
        library().entmax_attention_take(kept, address(starts), len(kept), *places)
    check(failed)
    assert support is not None
    if support.size(1) > _MUCH and support.size(1) > 2 * int(starts[-1]):
        support = support.narrow(1, 0, int(starts[-1])).clone()
    return output, (starts, support)


def _empty(number: int) -> Tensor:
    """Room for so many keys and their probabilities."""
    return torch.empty((2, number), dtype=torch.int32)


def _addresses(support: Tensor | None) -> tuple[int, int]:
    """Where keys are, and their probabilities."""
    start = address(support)
    return start, 0 if support is None else start + support.nbytes // 2


def _backward(
    inputs: Inputs, output: None, kept: Sequence[Tensor], grad: Tensor, wanted: Sequence[bool]
) -> Sequence[Tensor | None]:
    # Hooks on what is saved may give it back in other places
    rows = [dense_rows(tensor) for tensor in (*inputs[:3], grad)]
    query, key = rows[:2]
    epsilon = epsilon_of_heads(inputs.epsilon, query.size(1))
    grads = [positions_first(tensor) for tensor in rows[:3]]
    for_epsilon = torch.zeros(query.shape[:2], dtype=torch.float64) if wanted[3] else None
    if query.numel() and key.numel():
        # Gradients of attention.h
        gradients = b"".join(map(_matrices, (*rows, *grads)))
        gradients += struct.pack("P", address(for_epsilon))
        shape = _shape(inputs, epsilon, None, None)  # the support has what masks leave
        starts, support = (tensor.contiguous() for tensor in kept)
        for_scores = torch.empty(support.size(1))
        weights = torch.empty_like(for_scores) if inputs.settings.dropout else None
        failed = library().entmax_attention_backward(
            *(shape, gradients, address(starts), *_addresses(support)),
            *(address(for_scores), address(weights), _blocks_and_threads(query, key)[1]),
        )
        check(failed)
    else:
        grads = [tensor.zero_() for tensor in grads]
    if for_epsilon is None or not isinstance(inputs.epsilon, Tensor):
        return *grads, None
    each = for_epsilon.sum(0).sum_to_size(inputs.epsilon.shape)
    return *grads, each.to(inputs.epsilon.dtype)


# As fairseq_entmax.kernels.attention.attention
attention = functools.partial(of_any.attention, Backend(_forward, _backward))
