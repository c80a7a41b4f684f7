"""Attention in C: scores, alpha-entmax and the weighted sum in one pass, and its gradients.

Scores never reach memory; the probabilities do where a backward pass will need them. The C code is
``attention.h``, compiled together with the rest by :mod:`fairseq_entmax.kernels.native.library`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.kernels import derivatives, torch_structured
from fairseq_entmax.kernels.inputs import (
    ScoreSettings,
    attention_by,
    check_of_heads,
    dense_rows,
    positions_first,
)
from fairseq_entmax.kernels.native import attention_rows, library, rows, structured
from fairseq_entmax.kernels.structure import TV

# For which queries the kernel is, as an error says it
TAKEN = "in float32 on a CPU"


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
        ("kind", ctypes.c_long),
        ("strength", ctypes.c_void_p),
        ("causal", ctypes.c_long),
    )


class _Gradients(ctypes.Structure):
    _fields_ = (
        *((name, _Matrices) for name in ("query", "key", "value", "grad")),
        *((name, _Matrices) for name in ("for_query", "for_key", "for_value")),
        ("for_alpha", ctypes.c_void_p),
        ("for_strength", ctypes.c_void_p),
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


def _shape(
    query: Tensor,
    key: Tensor,
    epsilon: Tensor,
    options: ScoreSettings,
    kind: str | None,
    strength: Tensor | None,
) -> _Shape:
    padding, mask, _, scale = options
    return _Shape(
        *(*query.shape[:3], key.size(2), query.size(3), scale),
        *(epsilon.data_ptr(), library.address(padding), library.address(mask)),
        *(0 if kind is None else structured.NUMBERS[kind], library.address(strength)),
    )


def _threads(query: Tensor, key: Tensor) -> int:
    numbers = query.size(0) * query.size(1) * query.size(2) * key.size(2)
    return library.threads_for(numbers, query.size(0) * query.size(1))


def _of_heads(parameter: float | Tensor | None, heads: int) -> Tensor | None:
    """A number for each head, as the library reads them."""
    if parameter is None:
        return None
    return torch.as_tensor(parameter, dtype=torch.float32).expand(heads).contiguous()


def _summed(each: Tensor | None, like: Tensor | None) -> Tensor | None:
    """Numbers of sentences and heads, summed to a parameter."""
    if each is None or like is None:
        return None
    return each.sum(0).sum_to_size(like.shape).to(like.dtype)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        epsilon: float | Tensor,
        options: ScoreSettings,
        kind: str | None = None,
        strength: float | Tensor | None = None,
    ) -> Tensor:
        options = _as_read(options, query, key)
        batch, heads, queries, _ = query.shape
        row_epsilon, row_strength = _of_heads(epsilon, heads), _of_heads(strength, heads)
        assert row_epsilon is not None
        output = positions_first(query)
        probs = None
        if any(ctx.needs_input_grad):
            sizes = (batch, heads, _blocks(queries), key.size(2), library.lanes())
            probs = query.new_empty(sizes)
        if output.numel():
            shape = _shape(query, key, row_epsilon, options, kind, row_strength)
            library.check(
                library.library().entmax_structured_attention_forward(
                    ctypes.byref(shape),
                    *(ctypes.byref(_Matrices.of(t)) for t in (query, key, value, output)),
                    library.address(probs),
                    _threads(query, key),
                )
            )
        parameters = [p if isinstance(p, Tensor) else None for p in (epsilon, strength)]
        # TV's strength alone has a gradient that the probabilities do not tell
        masks: tuple[Tensor | None, ...] = (None, None)
        if kind == TV:
            masks = options[:2]
        of_rows = (row_epsilon, row_strength, probs)
        ctx.save_for_backward(query, key, value, *parameters, *of_rows, *masks)
        ctx.numbers = [None if isinstance(p, Tensor) else p for p in (epsilon, strength)]
        ctx.kind, ctx.scale = kind, options.scale
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, epsilon, strength, row_epsilon, row_strength, probs, *masks = (
            ctx.saved_tensors
        )
        if derivatives.are_wanted(grad):
            return _differentiable(ctx, grad)
        # Hooks on what is saved may give it back in other places
        query, key, value = dense_rows(query), dense_rows(key), dense_rows(value)
        probs = probs.contiguous()
        grad = dense_rows(grad)  # held until the library has read it
        tensors = [positions_first(query), positions_first(key), positions_first(value)]
        for_epsilon, for_strength = (
            torch.zeros(query.shape[:2], dtype=torch.float64) if is_wanted else None
            for is_wanted in (*ctx.needs_input_grad, False, False)[3:7:3]
        )
        if query.numel() and key.numel():
            gradients = _Gradients(
                *(_Matrices.of(tensor) for tensor in (query, key, value, grad, *tensors)),
                *(library.address(for_epsilon), library.address(for_strength)),
            )
            padding, mask = (None if mask is None else mask.contiguous() for mask in masks)
            options = ScoreSettings(padding, mask, False, ctx.scale)
            shape = _shape(query, key, row_epsilon, options, ctx.kind, row_strength)
            library.check(
                library.library().entmax_structured_attention_backward(
                    ctypes.byref(shape),
                    ctypes.byref(gradients),
                    library.address(probs),
                    _threads(query, key),
                )
            )
        else:
            tensors = [tensor.zero_() for tensor in tensors]
        parameters = _summed(for_epsilon, epsilon), None, None, _summed(for_strength, strength)
        return *tensors, *parameters


def _differentiable(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients in operations that autograd follows."""
    query, key, value, epsilon, strength, _, _, probs, *masks = ctx.saved_tensors
    # From (batch, heads, blocks, keys, lanes)
    rows = probs.transpose(-1, -2).flatten(2, 3)[:, :, : query.size(2)]
    epsilon = ctx.numbers[0] if epsilon is None else epsilon
    inputs, kind = (query, key, value), ctx.kind
    if kind is None:
        found = derivatives.attention_gradients(inputs, [epsilon], rows, grad, ctx.scale)
        return *found, None, None, None
    masked = _masked(masks, query)
    masked = None if masked is None else masked.expand(rows.shape)

    def of_rows(
        probs: Tensor, parameters: Sequence[float | Tensor], grad: Tensor, wanted: Sequence[bool]
    ) -> tuple[Tensor | None, ...]:
        epsilon, strength = parameters
        for_scores, for_epsilon, for_strength = wanted
        return torch_structured.gradients(
            probs, kind, epsilon, strength, masked, grad, (for_scores, for_epsilon, for_strength)
        )

    parameters = [epsilon, ctx.numbers[1] if strength is None else strength]
    *others, for_strength = derivatives.attention_gradients(
        inputs, parameters, rows, grad, ctx.scale, of_rows
    )
    return *others, None, None, for_strength


def _masked(masks: list[Tensor | None], query: Tensor) -> Tensor | None:
    """Which keys are left out, ``(batch, 1, queries, keys)`` or broadcast to it, as of `_as_read`."""
    padding, mask = masks
    masked = None
    if padding is not None:
        masked = padding[:, None, None]
    if mask is not None:
        hidden = mask[:, : query.size(2)].t() == -torch.inf
        masked = hidden if masked is None else masked | hidden
    return masked


attention = attention_rows.attention


def structured_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    kind: str,
    epsilon: float | Tensor,
    strength: float | Tensor,
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    causal: bool = False,
    scale: float = 1.0,
) -> Tensor:
    """Attention with a mapping with structure, as :meth:`~fairseq_entmax.kernels.backends.Attention`.

    A key that a mask leaves out parts its neighbours.

    Args:
        query, key, value: as there.
        kind: one of :data:`fairseq_entmax.kernels.structure.KINDS`.
        epsilon, strength: of :class:`fairseq_entmax.kernels.structure.Structure`: each a number, or
            a tensor of one for all or ``(heads,)``, which may require a gradient.
        key_padding_mask, attn_mask, causal, scale: as there.

    Returns:
        As there. Differentiable in query, key, value and the parameters, to any order.

    Raises:
        ValueError: shapes, dtypes or devices are not as said.
    """
    check_of_heads(strength, "strength", query.size(1))

    def apply(*inputs: Any) -> Tensor:
        output: Tensor = _Attention.apply(*inputs, kind, strength)
        return output

    attend = attention_by(apply, takes, TAKEN)
    return attend(query, key, value, epsilon, key_padding_mask, attn_mask, causal, scale)
