"""Attention with alpha-entmax in C, from scores to outputs and back, on the support alone.

The forward pass has one product of queries and keys, whose scores never reach memory. It keeps the
support: of each query the keys with a probability above zero, and these. The backward pass works
on that. What it keeps is as it is before dropout, which a backward pass finds again by its seed. The C
code is ``attention_rows.h``, for short rows ``attention_short.h`` and ``attention_dense.h``, and
``dropout.h``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.kernels.attention_derivatives import attention_gradients, dropped
from fairseq_entmax.kernels.inputs import ScoreSettings, dense_rows, positions_first
from fairseq_entmax.kernels.native import library
from fairseq_entmax.kernels.native.arguments import (
    Gradients,
    Matrices,
    Shape,
    of_heads,
    summed,
)
from fairseq_entmax.kernels.operators import is_plain

# For the support of so few keys there is room from the start: it need not be put together
FEW_KEYS = 160


def _as_read(options: ScoreSettings) -> ScoreSettings:
    """The masks as the library reads them."""
    padding, mask = options[:2]
    mask = None if mask is None else mask.to(torch.float32).contiguous()
    padding = None if padding is None else padding.contiguous()
    return options._replace(key_padding_mask=padding, attn_mask=mask)


def _threads(query: Tensor, key: Tensor) -> int:
    heads = query.size(0) * query.size(1)
    return library.threads_for(heads * query.size(2) * key.size(2), heads * _blocks(query))


def _blocks(query: Tensor) -> int:
    return -(-query.size(2) // library.lanes())


class Support(NamedTuple):
    """The keys that each query gives a probability, which rise, and these.

    Attributes:
        starts: ``(batch * heads * queries up to a multiple of the lanes + 1,)``, int64: where each
            query's begin, and where the last one's end.
        keys, probs: ``(number,)``, int32 and float32.
    """

    starts: Tensor
    keys: Tensor
    probs: Tensor


class _Kept:
    """What the forward pass keeps for the backward pass, before it is known how much that is."""

    def __init__(self, query: Tensor, key: Tensor) -> None:
        self._blocks = query.size(0) * query.size(1) * _blocks(query)
        self.starts = torch.zeros(self._blocks * library.lanes() + 1, dtype=torch.int64)
        self._pointers, self._room = None, None
        if key.size(2) <= FEW_KEYS:
            most = self._blocks * library.lanes() * key.size(2)
            kinds = (torch.int32, torch.float32)
            self._room = tuple(torch.empty(most, dtype=dtype) for dtype in kinds)
        else:
            self._pointers = (ctypes.c_void_p * max(self._blocks, 1))()

    @property
    def addresses(self) -> tuple[int | None, ...]:
        """Where the library writes: starts, pointers, keys and probabilities."""
        pointers = None if self._pointers is None else ctypes.addressof(self._pointers)
        return (
            self.starts.data_ptr(),
            pointers,
            *(tensor.data_ptr() for tensor in self._room or ()),
            *(() if self._room else (None, None)),
        )

    def take(self) -> Support:
        """Where each query starts, the keys and the probabilities; what the library has is freed."""
        total = int(self.starts[-1])
        if self._room:
            keys, probs = (tensor[:total] for tensor in self._room)
            if 2 * total < self._room[0].numel():  # no more than twice what is needed stays
                keys, probs = keys.clone(), probs.clone()
            return Support(self.starts, keys, probs)
        assert self._pointers is not None
        try:
            keys = torch.empty(total, dtype=torch.int32)
            probs = torch.empty(total, dtype=torch.float32)
        except RuntimeError:  # as torch says that there is no memory
            self.drop()
            raise
        library.library().entmax_attention_take(
            ctypes.addressof(self._pointers),
            *(self.starts.data_ptr(), self._blocks, keys.data_ptr(), probs.data_ptr()),
        )
        return Support(self.starts, keys, probs)

    def drop(self) -> None:
        if self._pointers is not None:
            library.library().entmax_attention_take(
                ctypes.addressof(self._pointers), None, self._blocks, None, None
            )


def forward(
    inputs: Sequence[Tensor],
    epsilon: float | Tensor,
    options: ScoreSettings,
    output: Tensor,
    keeps: bool,
) -> Support | None:
    """Write the output; the support, if it is to be kept.

    Args:
        inputs: query, key and value, ``(batch, heads, positions, head_dim)``, with dense rows.
        epsilon: a number, or a tensor of one or for each head.
        options: masks, scale and dropout.
        output: as the query, with dense rows.
        keeps: whether a backward pass will follow.
    """
    query, key, value = inputs
    row_epsilon = of_heads(epsilon, query.size(1))
    assert row_epsilon is not None
    kept = _Kept(query, key) if keeps else None
    if output.numel():
        read = _as_read(options)
        shape = Shape.of(query, key, row_epsilon, read)
        failed = library.library().entmax_attention_forward(
            ctypes.byref(shape),
            *(ctypes.byref(Matrices.of(tensor)) for tensor in (query, key, value, output)),
            *((None,) * 4 if kept is None else kept.addresses),
            _threads(query, key),
        )
        if failed and kept is not None:
            kept.drop()
        library.check(failed)
    return None if kept is None else kept.take()


def backward(
    inputs: Sequence[Tensor],
    epsilon: float | Tensor,
    options: ScoreSettings,
    support: Support,
    grad: Tensor,
    for_epsilon: bool,
) -> tuple[Tensor | None, ...]:
    """The gradients of query, key, value and epsilon; that of epsilon only if it is wanted.

    Masks need not be among the options: the support has what they leave.
    """
    query, key, value = inputs
    row_epsilon = of_heads(epsilon, query.size(1))
    assert row_epsilon is not None
    grads = [positions_first(tensor) for tensor in inputs]
    of_epsilon = torch.zeros(query.shape[:2], dtype=torch.float64) if for_epsilon else None
    if query.numel() and key.numel():
        gradients = Gradients.of((query, key, value, grad), grads, of_epsilon)
        options = options._replace(key_padding_mask=None, attn_mask=None)
        shape = Shape.of(query, key, row_epsilon, options)
        starts, keys, probs = (tensor.contiguous() for tensor in support)
        for_scores = torch.empty_like(probs)
        weights = torch.empty_like(probs) if options.dropout else None
        library.check(
            library.library().entmax_attention_backward(
                ctypes.byref(shape),
                ctypes.byref(gradients),
                *(library.address(one) for one in (starts, keys, probs, for_scores, weights)),
                _threads(query, key),
            )
        )
    else:
        grads = [tensor.zero_() for tensor in grads]
    return *grads, summed(of_epsilon, epsilon if isinstance(epsilon, Tensor) else None)


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
        inputs, output = (query, key, value), positions_first(query)
        support = forward(inputs, epsilon, options, output, True)
        assert support is not None
        given, ctx.number = (epsilon, None) if isinstance(epsilon, Tensor) else (None, epsilon)
        ctx.save_for_backward(*inputs, given, options.seed, *support)
        ctx.scale, ctx.dropout = options.scale, options.dropout
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, epsilon, seed, *saved = ctx.saved_tensors
        inputs, support = (query, key, value), Support(*saved)
        given = ctx.number if epsilon is None else epsilon
        if torch.is_grad_enabled() or not is_plain(grad):
            # In operations that autograd follows, and which take many gradients at once
            probs = dense(support, query, key)
            factors = dropped(probs, ctx.dropout, seed)
            found = attention_gradients(
                inputs, (given, 0.0), probs, grad, ctx.scale, factors=factors
            )
            return *found[:4], None
        # Hooks on what is saved may give it back in other places
        rows = [dense_rows(tensor) for tensor in inputs]
        wanted = ctx.needs_input_grad[3]
        options = ScoreSettings(scale=ctx.scale, dropout=ctx.dropout, seed=seed)
        return *backward(rows, given, options, support, dense_rows(grad), wanted), None


def attend(
    query: Tensor, key: Tensor, value: Tensor, epsilon: float | Tensor, options: ScoreSettings
) -> Tensor:
    """Attention, differentiable to any order, of inputs with dense rows and numbers in memory."""
    inputs = (query, key, value)
    parameters = (*inputs, epsilon) if isinstance(epsilon, Tensor) else inputs
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in parameters):
        attended: Tensor = _Attention.apply(*inputs, epsilon, options)
        return attended
    output = positions_first(query)
    forward(inputs, epsilon, options, output, False)
    return output


def dense(support: Support, query: Tensor, key: Tensor) -> Tensor:
    """The probabilities ``(batch, heads, queries, keys)``."""
    starts, keys, probs = support
    batch, heads, queries, _ = query.shape
    rows = torch.arange(starts.numel() - 1).repeat_interleave(starts.diff())
    found = probs.new_zeros((starts.numel() - 1, key.size(2)))
    found[rows, keys.long()] = probs
    rows_of_blocks = found.view(batch, heads, _blocks(query) * library.lanes(), key.size(2))
    return rows_of_blocks[:, :, :queries].contiguous()


def support(probs: Tensor) -> Support:
    """The support of probabilities ``(batch, heads, queries, keys)``."""
    batch, heads, queries, _ = probs.shape
    lanes = library.lanes()
    numbers = probs.new_zeros((batch, heads, -(-queries // lanes) * lanes), dtype=torch.int64)
    is_there = probs != 0
    numbers[:, :, :queries] = is_there.sum(-1)
    starts = numbers.new_zeros(numbers.numel() + 1)
    torch.cumsum(numbers.view(-1), 0, out=starts[1:])
    keys = is_there.nonzero()[:, -1].to(torch.int32)
    return Support(starts, keys, probs[is_there])
