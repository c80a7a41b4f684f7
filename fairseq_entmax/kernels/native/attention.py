"""Alpha-entmax attention in C, forward and backward, on the support alone.

The forward pass multiplies queries and keys once, and never stores all scores. It keeps the
support: for each query, the keys with a probability above zero, and these probabilities before
dropout. The backward pass works on that, and draws the same dropout again from its seed. The C code
is in ``attention_support.h``, ``attention_rows.h``, ``attention_short.h`` (short rows),
``attention_dense.h`` (the backward pass of dense heads) and ``dropout.h``.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence

import torch
from torch import Tensor

from fairseq_entmax.kernels import attention as of_any
from fairseq_entmax.kernels.attention import Backend, Inputs
from fairseq_entmax.kernels.dropout import least_word
from fairseq_entmax.kernels.inputs import (
    ScoreSettings,
    dense_rows,
    epsilon_of_heads,
    positions_first,
)
from fairseq_entmax.kernels.native.library import address, check, lanes, library, threads_for

# If the support has room for more keys than this, and uses less than half of it, it is cut to size
_MUCH = 2**16


# Structs of attention.h. Shape includes Dropout; the last is Gradients without its Matrices
_MATRICES = struct.Struct("P3l")
_SHAPE = struct.Struct("5lf3PlqIf")
_SUPPORT = struct.Struct("3P")
_OTHER_GRADIENTS = struct.Struct("3P")


def supports(query: Tensor, dtype: torch.dtype, head_dim: int) -> bool:
    """Whether the kernels take queries on this device: on a CPU."""
    return query.device.type == "cpu"


def _matrices(tensor: Tensor) -> bytes:
    """The Matrices struct of a tensor: its address, and strides of sentences, heads and rows."""
    return _MATRICES.pack(tensor.data_ptr(), *tensor.stride()[:3])


def _shape(
    sizes: tuple[int, ...],
    settings: ScoreSettings,
    epsilon: Tensor,
    padding: Tensor | None,
    mask: Tensor | None,
) -> bytes:
    """The Shape struct: sizes, parameters and masks. The tensors must outlive its use."""
    drops = (0, 0, 0.0)
    if settings.dropout:
        assert settings.seed is not None
        share = settings.dropout
        drops = (int(settings.seed), least_word(share), 1 / (1 - share))
    return _SHAPE.pack(
        *(*sizes, settings.scale),
        *(address(epsilon), address(padding), address(mask), int(settings.causal), *drops),
    )


def _blocks_and_threads(sizes: tuple[int, ...]) -> tuple[int, int]:
    """How many blocks of lanes the queries of all heads fill, and how many threads to use."""
    sentences, heads, queries, keys, _ = sizes
    blocks = sentences * heads * -(-queries // lanes())
    return blocks, threads_for(sentences * heads * queries * keys, blocks)


def _forward(inputs: Inputs, keeps: bool) -> tuple[Tensor, Sequence[Tensor]]:
    """The output; with ``keeps``, also where each query's support starts, and the support.

    The support is int32, ``(2, keys of all queries)``: keys, and the bits of float32 probabilities.
    """
    settings, sizes = inputs.settings, inputs.sizes()
    _, heads, _, keys, _ = sizes
    output, epsilon = positions_first(inputs.query), epsilon_of_heads(inputs.epsilon, heads)
    blocks, threads = _blocks_and_threads(sizes)
    starts = support = None
    if keeps:
        starts = output.new_zeros(blocks * lanes() + 1, dtype=torch.int64)
        # Room for all keys: what is not written to uses no memory. torch.empty may fill it
        room = blocks * lanes() * keys
        storage = torch.UntypedStorage(room * 8)
        support = output.new_empty(0, dtype=torch.int32).set_(storage).view(2, room)
    if output.numel():
        padding, mask = settings.key_padding_mask, settings.attn_mask
        padding = None if padding is None else padding.contiguous()
        mask = None if mask is None else mask.to(torch.float32).contiguous()
        matrices = b"".join([_matrices(one) for one in (*inputs[:3], output)])
        shape, places = _shape(sizes, settings, epsilon, padding, mask), _places(starts, support)
        check(library().entmax_attention_forward(shape, matrices, places, threads))
    if starts is None or support is None:
        return output, ()
    if support.size(1) > _MUCH and support.size(1) > 2 * int(starts[-1]):
        support = support.narrow(1, 0, int(starts[-1])).clone()
    return output, (starts, support)


def _places(starts: Tensor | None, support: Tensor | None) -> bytes:
    """The Support struct: the addresses of starts, keys and probabilities."""
    keys = address(support)
    probs = 0 if support is None else keys + support.nbytes // 2
    return _SUPPORT.pack(address(starts), keys, probs)


def _backward(
    inputs: Inputs, output: None, saved: Sequence[Tensor], grad: Tensor, wanted: Sequence[bool]
) -> Sequence[Tensor | None]:
    # Hooks on saved tensors may return them with another memory layout
    rows = [dense_rows(tensor) for tensor in (*inputs[:3], grad)]
    sizes = inputs.sizes()
    epsilon = epsilon_of_heads(inputs.epsilon, sizes[1])
    grads = [positions_first(tensor) for tensor in rows[:3]]
    for_epsilon = grad.new_zeros(sizes[:2], dtype=torch.float64) if wanted[3] else None
    if rows[0].numel() and rows[1].numel():
        # No masks: the support already excludes masked keys
        shape = _shape(sizes, inputs.settings, epsilon, None, None)
        starts, support = (tensor.contiguous() for tensor in saved)
        for_scores = grad.new_empty(support.size(1))
        weights = torch.empty_like(for_scores) if inputs.settings.dropout else None
        gradients = b"".join([_matrices(one) for one in (*rows, *grads)])
        gradients += _OTHER_GRADIENTS.pack(*map(address, (for_epsilon, for_scores, weights)))
        places, threads = _places(starts, support), _blocks_and_threads(sizes)[1]
        check(library().entmax_attention_backward(shape, gradients, places, threads))
    else:
        grads = [tensor.zero_() for tensor in grads]
    if for_epsilon is None or not isinstance(inputs.epsilon, Tensor):
        return *grads, None
    each = for_epsilon.sum(0).sum_to_size(inputs.epsilon.shape)
    return *grads, each.to(inputs.epsilon.dtype)


# As fairseq_entmax.kernels.attention.attention
attention = functools.partial(of_any.attention, Backend(_forward, _backward))
