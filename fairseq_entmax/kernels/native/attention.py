"""Attention in C: scores, alpha-entmax and the weighted sum in one pass, and its gradients.

Scores never reach memory; the probabilities do where a backward pass will need them. The C code is
``attention.h``, compiled together with the rest by :mod:`fairseq_entmax.kernels.native.library`.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.kernels import derivatives
from fairseq_entmax.kernels.inputs import (
    ScoreSettings,
    attention_by,
    dense_rows,
    positions_first,
)
from fairseq_entmax.kernels.native import library, rows


class _Matrices(ctypes.Structure):
    """As in attention.h: a matrix for each sentence and head."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("sentence", ctypes.c_long),
        ("head", ctypes.c_long),
        ("row", ctypes.c_long),
    )

    @classmethod
    def of(cls, tensor: Tensor) -> _Matrices:
        return cls(tensor.data_ptr(), *tensor.stride()[:3])


class _Shape(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_long) for name in ("sentences", "heads", "queries", "keys", "size")),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("epsilon", "padding", "mask")),
    )


class _Gradients(ctypes.Structure):
    _fields_ = (
        *((name, _Matrices) for name in ("query", "key", "value", "grad")),
        *((name, _Matrices) for name in ("for_query", "for_key", "for_value")),
        ("for_alpha", ctypes.c_void_p),
    )


def takes(query: Tensor) -> bool:
    """Whether the kernel is for such queries: float32 on a CPU."""
    return rows.takes(query) and query.dtype == torch.float32


def _as_read(options: ScoreSettings, query: Tensor, key: Tensor) -> ScoreSettings:
    """The masks as the library reads them: one of the future is a mask as any other."""
    padding, mask, causal, scale = options
    queries, keys = query.size(2), key.size(2)
    if causal:
        future = query.new_full((queries, keys), -torch.inf).triu(1 + keys - queries)
        mask = future if mask is None else mask + future
    if mask is not None:
        # As the lanes read it: a row for each key, and queries up to a multiple of the lanes
        for_lanes = mask.new_zeros((keys, _blocks(queries) * library.lanes()), dtype=torch.float32)
        for_lanes[:, :queries] = mask.t()
        mask = for_lanes
    return ScoreSettings(None if padding is None else padding.contiguous(), mask, False, scale)


def _blocks(queries: int) -> int:
    """How many times the lanes are filled."""
    return -(-queries // library.lanes())


def _shape(query: Tensor, key: Tensor, epsilon: Tensor, options: ScoreSettings) -> _Shape:
    padding, mask, _, scale = options
    return _Shape(
        *(*query.shape[:3], key.size(2), query.size(3), scale),
        *(epsilon.data_ptr(), library.address(padding), library.address(mask)),
    )


def _threads(query: Tensor, key: Tensor) -> int:
    numbers = query.size(0) * query.size(1) * query.size(2) * key.size(2)
    return library.threads_for(numbers, query.size(0) * query.size(1))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        epsilon: float | Tensor,
        options: ScoreSettings,
    ) -> Tensor:
        options = _as_read(options, query, key)
        batch, heads, queries, _ = query.shape
        row_epsilon = torch.as_tensor(epsilon, dtype=torch.float32).expand(heads).contiguous()
        output = positions_first(query)
        probs = None
        if any(ctx.needs_input_grad):
            sizes = (batch, heads, _blocks(queries), key.size(2), library.lanes())
            probs = query.new_empty(sizes)
        if output.numel():
            library.check(
                library.library().entmax_attention_forward(
                    ctypes.byref(_shape(query, key, row_epsilon, options)),
                    *(ctypes.byref(_Matrices.of(t)) for t in (query, key, value, output)),
                    library.address(probs),
                    _threads(query, key),
                )
            )
        is_tensor = isinstance(epsilon, Tensor)
        ctx.save_for_backward(query, key, value, epsilon if is_tensor else None, row_epsilon, probs)
        ctx.epsilon, ctx.scale = None if is_tensor else epsilon, options.scale
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, epsilon, row_epsilon, probs = ctx.saved_tensors
        if derivatives.are_wanted(grad):
            # From (batch, heads, blocks, keys, lanes)
            rows = probs.transpose(-1, -2).flatten(2, 3)[:, :, : query.size(2)]
            inputs = (query, key, value, ctx.epsilon if epsilon is None else epsilon)
            return *derivatives.attention_gradients(*inputs, rows, grad, ctx.scale), None
        # Hooks on what is saved may give it back in other places
        query, key, value = dense_rows(query), dense_rows(key), dense_rows(value)
        probs = probs.contiguous()
        grad = dense_rows(grad)  # held until the library has read it
        tensors = [positions_first(query), positions_first(key), positions_first(value)]
        for_epsilon = None
        if ctx.needs_input_grad[3]:
            for_epsilon = torch.zeros(query.shape[:2], dtype=torch.float64)
        if query.numel() and key.numel():
            gradients = _Gradients(
                *(_Matrices.of(tensor) for tensor in (query, key, value, grad, *tensors)),
                library.address(for_epsilon),
            )
            library.check(
                library.library().entmax_attention_backward(
                    ctypes.byref(_shape(query, key, row_epsilon, ScoreSettings(scale=ctx.scale))),
                    ctypes.byref(gradients),
                    library.address(probs),
                    _threads(query, key),
                )
            )
        else:
            tensors = [tensor.zero_() for tensor in tensors]
        if for_epsilon is not None:
            for_epsilon = for_epsilon.sum(0).sum_to_size(epsilon.shape).to(epsilon.dtype)
        return (*tensors, for_epsilon, None)


attention = attention_by(_Attention, takes, "in float32 on a CPU")
