"""Attention with alpha-entmax in C, from scores to outputs and back, on the support alone.

The forward pass has one product of queries and keys, whose scores never reach memory. It keeps the
support: of each query the keys with a probability above zero, and these. The backward pass works
on that. The C code is ``attention_rows.h``.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.kernels import derivatives
from fairseq_entmax.kernels.inputs import ScoreSettings, attention_by, dense_rows, positions_first
from fairseq_entmax.kernels.native import library
from fairseq_entmax.kernels.native.arguments import (
    TAKEN,
    Gradients,
    Matrices,
    Shape,
    of_heads,
    summed,
    takes,
)


def _as_read(options: ScoreSettings) -> ScoreSettings:
    """The masks as the library reads them."""
    padding, mask, causal, scale = options
    mask = None if mask is None else mask.to(torch.float32).contiguous()
    return ScoreSettings(None if padding is None else padding.contiguous(), mask, causal, scale)


def _threads(query: Tensor, key: Tensor) -> int:
    heads = query.size(0) * query.size(1)
    return library.threads_for(heads * query.size(2) * key.size(2), heads * _blocks(query))


def _blocks(query: Tensor) -> int:
    return -(-query.size(2) // library.lanes())


class _Kept:
    """What the forward pass keeps for the backward pass, before it is known how much that is."""

    def __init__(self, query: Tensor) -> None:
        self._blocks = query.size(0) * query.size(1) * _blocks(query)
        self._pointers = (ctypes.c_void_p * max(self._blocks, 1))()
        self.starts = torch.zeros(self._blocks * library.lanes() + 1, dtype=torch.int64)
        self.address = ctypes.addressof(self._pointers)

    def take(self) -> tuple[Tensor, Tensor, Tensor]:
        """Where each query starts, the keys and the probabilities; what the library has is freed."""
        try:
            total = int(self.starts[-1])
            keys = torch.empty(total, dtype=torch.int32)
            probs = torch.empty(total, dtype=torch.float32)
        except RuntimeError:  # as torch says that there is no memory
            self.drop()
            raise
        library.library().entmax_attention_take(
            self.address, self.starts.data_ptr(), self._blocks, keys.data_ptr(), probs.data_ptr()
        )
        return self.starts, keys, probs

    def drop(self) -> None:
        library.library().entmax_attention_take(self.address, None, self._blocks, None, None)


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
        row_epsilon = of_heads(epsilon, query.size(1))
        assert row_epsilon is not None
        output = positions_first(query)
        kept = _Kept(query) if any(ctx.needs_input_grad) else None
        if output.numel():
            read = _as_read(options)
            shape = Shape.of(query, key, row_epsilon, read)
            matrices = (ctypes.byref(Matrices.of(t)) for t in (query, key, value, output))
            failed = library.library().entmax_attention_forward(
                ctypes.byref(shape),
                *matrices,
                None if kept is None else kept.starts.data_ptr(),
                None if kept is None else kept.address,
                _threads(query, key),
            )
            if failed and kept is not None:
                kept.drop()
            library.check(failed)
        ctx.scale = options.scale
        if kept is not None:
            is_tensor = isinstance(epsilon, Tensor)
            ctx.number = None if is_tensor else epsilon
            given = epsilon if is_tensor else None
            ctx.save_for_backward(query, key, value, given, row_epsilon, *kept.take())
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, epsilon, row_epsilon, starts, keys, probs = ctx.saved_tensors
        if derivatives.are_wanted(grad):
            rows = _dense(starts, keys, probs, query, key)
            given = ctx.number if epsilon is None else epsilon
            inputs = (query, key, value)
            return *derivatives.attention_gradients(inputs, [given], rows, grad, ctx.scale), None
        # Hooks on what is saved may give it back in other places
        query, key, value, grad = (dense_rows(tensor) for tensor in (query, key, value, grad))
        starts, keys, probs = starts.contiguous(), keys.contiguous(), probs.contiguous()
        tensors = [positions_first(query), positions_first(key), positions_first(value)]
        for_epsilon = None
        if ctx.needs_input_grad[3]:
            for_epsilon = torch.zeros(query.shape[:2], dtype=torch.float64)
        if query.numel() and key.numel():
            gradients = Gradients.of((query, key, value, grad), tensors, for_epsilon)
            shape = Shape.of(query, key, row_epsilon, ScoreSettings(scale=ctx.scale))
            for_scores = torch.empty_like(probs)
            library.check(
                library.library().entmax_attention_backward(
                    ctypes.byref(shape),
                    ctypes.byref(gradients),
                    *(tensor.data_ptr() for tensor in (starts, keys, probs, for_scores)),
                    _threads(query, key),
                )
            )
        else:
            tensors = [tensor.zero_() for tensor in tensors]
        return *tensors, summed(for_epsilon, epsilon), None


def _dense(starts: Tensor, keys: Tensor, probs: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The probabilities ``(batch, heads, queries, keys)``."""
    batch, heads, queries, _ = query.shape
    rows = torch.arange(starts.numel() - 1).repeat_interleave(starts.diff())
    dense = probs.new_zeros((starts.numel() - 1, key.size(2)))
    dense[rows, keys.long()] = probs
    return dense.view(batch, heads, -1, key.size(2))[:, :, :queries]


attention = attention_by(_Attention.apply, takes, TAKEN)
