"""Attention in C: scores, the mapping and the weighted sum in one pass, and its gradients.

Scores never reach memory. What a backward pass needs does: without structure the probabilities of
the support (:mod:`fairseq_entmax.kernels.native.attention_rows`), with it all of them, by
``attention.h``.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from fairseq_entmax.kernels import attention as of_any
from fairseq_entmax.kernels.attention import Backend, Inputs
from fairseq_entmax.kernels.inputs import ScoreSettings, dense_rows, positions_first
from fairseq_entmax.kernels.native import attention_rows, library, structured
from fairseq_entmax.kernels.native.arguments import (
    Gradients,
    Matrices,
    Shape,
    blocks,
    of_heads,
    summed,
    takes,
)
from fairseq_entmax.kernels.structure import TV

__all__ = ["WITH_DROPOUT", "attention", "structured_attention", "takes"]

# Functions that take a dropout
WITH_DROPOUT = frozenset({"attention"})


def _as_read(settings: ScoreSettings, query: Tensor, key: Tensor) -> ScoreSettings:
    """The masks as the library reads them: one of the future is a mask as any other."""
    padding, mask, causal, scale = settings[:4]
    queries, keys = query.size(2), key.size(2)
    if causal:
        future = query.new_full((queries, keys), -torch.inf).triu(1 + keys - queries)
        mask = future if mask is None else mask + future
    if mask is not None:
        # As the lanes read it: a row for each key, and queries up to a multiple of the lanes
        for_lanes = mask.new_zeros((keys, blocks(query) * library.lanes()), dtype=torch.float32)
        for_lanes[:, :queries] = mask.t()
        mask = for_lanes
    return ScoreSettings(None if padding is None else padding.contiguous(), mask, False, scale)


def _threads(query: Tensor, key: Tensor) -> int:
    heads = query.size(0) * query.size(1)
    return library.threads_for(heads * query.size(2) * key.size(2), heads)


def _forward(inputs: Inputs, keeps: bool) -> tuple[Tensor, Sequence[Tensor]]:
    query, key, value = inputs[:3]
    output, heads = positions_first(query), query.size(1)
    # (batch, heads, blocks, keys, lanes)
    size = (*query.shape[:2], blocks(query), key.size(2), library.lanes())
    probs = query.new_empty(size) if keeps else None
    epsilon, strength = of_heads(inputs.epsilon, heads), of_heads(inputs.strength, heads)
    if output.numel():
        settings = _as_read(inputs.settings, query, key)
        shape = Shape.of(inputs, epsilon, settings, structured.NUMBERS[inputs.kind], strength)
        library.check(
            library.library().entmax_structured_attention_forward(
                ctypes.byref(shape),
                *(ctypes.byref(Matrices.of(one)) for one in (query, key, value, output)),
                library.address(probs),
                _threads(query, key),
            )
        )
    return output, () if probs is None else (probs,)


def _backward(
    inputs: Inputs, output: None, kept: Sequence[Tensor], grad: Tensor, wanted: Sequence[bool]
) -> Sequence[Tensor | None]:
    # Hooks on what is saved may give it back in other places
    rows = [dense_rows(tensor) for tensor in (*inputs[:3], grad)]
    query, key = rows[:2]
    probs, heads = kept[0].contiguous(), query.size(1)
    grads = [positions_first(one) for one in rows[:3]]
    for_epsilon, for_strength = (
        torch.zeros(query.shape[:2], dtype=torch.float64) if is_wanted else None
        for is_wanted in wanted[3:]
    )
    if query.numel() and key.numel():
        gradients = Gradients.of(rows, grads, for_epsilon, for_strength)
        epsilon, strength = of_heads(inputs.epsilon, heads), of_heads(inputs.strength, heads)
        settings = ScoreSettings(scale=inputs.settings.scale)
        if inputs.kind == TV:  # the gradient of its strength is not told by probabilities alone
            settings = _as_read(inputs.settings, query, key)
        shape = Shape.of(inputs, epsilon, settings, structured.NUMBERS[inputs.kind], strength)
        library.check(
            library.library().entmax_structured_attention_backward(
                ctypes.byref(shape),
                ctypes.byref(gradients),
                library.address(probs),
                _threads(query, key),
            )
        )
    else:
        grads = [tensor.zero_() for tensor in grads]
    return *grads, summed(for_epsilon, inputs.epsilon), summed(for_strength, inputs.strength)


# As fairseq_entmax.kernels.attention.attention
attention = functools.partial(
    of_any.attention, Backend(attention_rows.forward, attention_rows.backward)
)
structured_attention = functools.partial(of_any.attention, Backend(_forward, _backward))
