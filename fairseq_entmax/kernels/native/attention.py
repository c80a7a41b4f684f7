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
from collections.abc import Sequence

import torch
from torch import Tensor

from fairseq_entmax.kernels import attention as of_any
from fairseq_entmax.kernels.attention import Backend, Inputs
from fairseq_entmax.kernels.dropout import least_kept
from fairseq_entmax.kernels.inputs import dense_rows, positions_first
from fairseq_entmax.kernels.native.library import address, check, lanes, library, threads_for

# For the support of so few keys there is room from the start: it need not be put together
FEW_KEYS = 160


class _Matrices(ctypes.Structure):
    """A matrix for each sentence and head, as in ``attention.h``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("sentence", "head", "row")),
    )

    @classmethod
    def of(cls, tensor: Tensor) -> _Matrices:
        return cls(tensor.data_ptr(), *tensor.stride()[:3])


class _Shape(ctypes.Structure):
    """Sizes, parameters and masks. The tensors are to live as long as this is used."""

    _fields_ = (
        *((name, ctypes.c_long) for name in ("sentences", "heads", "queries", "keys", "size")),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("epsilon", "padding", "mask")),
        ("causal", ctypes.c_long),
        # Of dropout.h
        *(("seed", ctypes.c_int64), ("least_kept", ctypes.c_uint32), ("factor", ctypes.c_float)),
    )

    @classmethod
    def of(
        cls, inputs: Inputs, epsilon: Tensor, padding: Tensor | None, mask: Tensor | None
    ) -> _Shape:
        settings, query = inputs.settings, inputs.query
        drops = (0, 0, 0.0)
        if settings.dropout:
            assert settings.seed is not None
            share = settings.dropout
            drops = (int(settings.seed), least_kept(share), 1 / (1 - share))
        return cls(
            *(*query.shape[:3], inputs.key.size(2), query.size(3), settings.scale),
            *(address(epsilon), address(padding), address(mask), int(settings.causal), *drops),
        )


class _Gradients(ctypes.Structure):
    """Inputs, the gradient of the output, and where gradients go."""

    _fields_ = (
        *((name, _Matrices) for name in ("query", "key", "value", "grad")),
        *((name, _Matrices) for name in ("for_query", "for_key", "for_value")),
        ("for_alpha", ctypes.c_void_p),
    )


def takes(query: Tensor) -> bool:
    """Whether the kernels are for such queries: float32 on a CPU."""
    return query.device.type == "cpu" and query.dtype == torch.float32


def _of_heads(inputs: Inputs) -> Tensor:
    """Epsilon of each head, as the library reads it."""
    epsilon = torch.as_tensor(inputs.epsilon, dtype=torch.float32)
    return epsilon.expand(inputs.query.size(1)).contiguous()


def _blocks(query: Tensor) -> int:
    """How many times the queries of all heads fill the lanes."""
    return query.shape[:2].numel() * -(-query.size(2) // lanes())


def _threads(query: Tensor, key: Tensor) -> int:
    return threads_for(query.shape[:3].numel() * key.size(2), _blocks(query))


def _forward(inputs: Inputs, keeps: bool) -> tuple[Tensor, Sequence[Tensor]]:
    """The output, and where each query's support begins, the last one's ends; keys; probabilities."""
    query, key, value, settings = inputs.query, inputs.key, inputs.value, inputs.settings
    output, epsilon = positions_first(query), _of_heads(inputs)
    starts = torch.zeros(_blocks(query) * lanes() + 1, dtype=torch.int64) if keeps else None
    few = kept = None
    if keeps and key.size(2) <= FEW_KEYS:
        few = _empty(_blocks(query) * lanes() * key.size(2))
    elif keeps:
        kept = (ctypes.c_void_p * max(_blocks(query), 1))()
    failed = 0
    if output.numel():
        padding, mask = settings.key_padding_mask, settings.attn_mask
        padding = None if padding is None else padding.contiguous()
        mask = None if mask is None else mask.to(torch.float32).contiguous()
        shape = _Shape.of(inputs, epsilon, padding, mask)
        failed = library().entmax_attention_forward(
            ctypes.byref(shape),
            *(ctypes.byref(_Matrices.of(tensor)) for tensor in (query, key, value, output)),
            *(address(starts), kept, *(address(tensor) for tensor in few or (None, None))),
            _threads(query, key),
        )
    if starts is None:
        check(failed)
        return output, ()
    total = int(starts[-1])
    keys, probs = few or (_empty(0) if failed else _empty(total))
    if few and 2 * total < keys.numel():  # no more than twice what is needed stays
        keys, probs = keys[:total].clone(), probs[:total].clone()
    elif kept is not None:
        own = None if failed else keys.data_ptr()
        library().entmax_attention_take(kept, address(starts), len(kept), own, address(probs))
    check(failed)
    return output, (starts, keys[:total], probs[:total])


def _empty(number: int) -> tuple[Tensor, Tensor]:
    """Room for so many keys and their probabilities."""
    return torch.empty(number, dtype=torch.int32), torch.empty(number, dtype=torch.float32)


def _backward(
    inputs: Inputs, output: None, kept: Sequence[Tensor], grad: Tensor, wanted: Sequence[bool]
) -> Sequence[Tensor | None]:
    # Hooks on what is saved may give it back in other places
    rows = [dense_rows(tensor) for tensor in (*inputs[:3], grad)]
    query, key = rows[:2]
    epsilon = _of_heads(inputs)
    grads = [positions_first(tensor) for tensor in rows[:3]]
    for_epsilon = torch.zeros(query.shape[:2], dtype=torch.float64) if wanted[3] else None
    if query.numel() and key.numel():
        matrices = (_Matrices.of(tensor) for tensor in (*rows, *grads))
        gradients = _Gradients(*matrices, address(for_epsilon))
        shape = _Shape.of(inputs, epsilon, None, None)  # the support has what masks leave
        starts, keys, probs = (tensor.contiguous() for tensor in kept)
        for_scores = torch.empty_like(probs)
        weights = torch.empty_like(probs) if inputs.settings.dropout else None
        failed = library().entmax_attention_backward(
            ctypes.byref(shape),
            ctypes.byref(gradients),
            *(address(one) for one in (starts, keys, probs, for_scores, weights)),
            _threads(query, key),
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
