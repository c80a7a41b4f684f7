"""Attention in C: scores, the mapping and the weighted sum in one pass, and its gradients.

Scores never reach memory. What a backward pass needs does: with structure the probabilities, by
``attention.h``; without it those of the support (:mod:`fairseq_entmax.kernels.native.attention_rows`).
The C code is compiled together with the rest by :mod:`fairseq_entmax.kernels.native.library`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from fairseq_entmax.kernels.attention import Backend, Given, function_of
from fairseq_entmax.kernels.inputs import (
    ScoreSettings,
    attention_by,
    check_of_heads,
    dense_rows,
    positions_first,
)
from fairseq_entmax.kernels.native import attention_rows, library, structured
from fairseq_entmax.kernels.native.arguments import (
    TAKEN,
    Gradients,
    Matrices,
    Shape,
    of_heads,
    summed,
    takes,
)
from fairseq_entmax.kernels.operators import as_arguments, is_plain
from fairseq_entmax.kernels.structure import TV

# Functions that take a dropout
WITH_DROPOUT = frozenset({"attention"})


def _as_read(options: ScoreSettings, query: Tensor, key: Tensor) -> ScoreSettings:
    """The masks as the library reads them: one of the future is a mask as any other."""
    padding, mask, causal, scale = options[:4]
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


def _threads(query: Tensor, key: Tensor) -> int:
    numbers = query.size(0) * query.size(1) * query.size(2) * key.size(2)
    return library.threads_for(numbers, query.size(0) * query.size(1))


def _forward(given: Given, keeps: bool) -> tuple[Tensor, Tensor | None, None]:
    query, key, value = (dense_rows(tensor) for tensor in given[:3])
    output = positions_first(query)
    if not given.kind:
        kept = attention_rows.forward(
            (query, key, value), given.parameters[0], given.settings, output, keeps
        )
        return output, None if kept is None else attention_rows.dense(kept, query, key), None
    _, epsilon, strength = _rows_of(given)
    probs = query.new_empty(_probs_size(given)) if keeps else None
    if output.numel():
        options = _as_read(given.settings, query, key)
        number = structured.NUMBERS[given.kind]
        shape = Shape.of(query, key, epsilon, options, number, strength)
        library.check(
            library.library().entmax_structured_attention_forward(
                ctypes.byref(shape),
                *(ctypes.byref(Matrices.of(t)) for t in (query, key, value, output)),
                library.address(probs),
                _threads(query, key),
            )
        )
    return output, probs, None


def _rows_of(given: Given) -> tuple[str | None, Tensor, Tensor | None]:
    """The kind, and epsilon and strength of each head."""
    heads, (epsilon, strength) = given.query.size(1), given.parameters
    row_epsilon = of_heads(epsilon, heads)
    assert row_epsilon is not None
    return given.kind or None, row_epsilon, of_heads(strength, heads) if given.kind else None


def _probs_size(given: Given) -> tuple[int, ...]:
    """Of the probabilities as they are kept: ``(batch, heads, blocks, keys, lanes)``.

    Without structure ``(batch, heads, queries, keys)``.
    """
    batch, heads, queries, _ = given.query.shape
    if not given.kind:
        return batch, heads, queries, given.key.size(2)
    return batch, heads, _blocks(queries), given.key.size(2), library.lanes()


def _backward(
    given: Given,
    output: None,
    probs: Tensor,
    nothing: None,
    grad: Tensor,
    wanted: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    # Hooks on what is saved may give it back in other places
    query, key, value, grad = (dense_rows(tensor) for tensor in (*given[:3], grad))
    if not given.kind:
        kept = attention_rows.support(probs)
        inputs = (query, key, value)
        return *attention_rows.backward(
            inputs, given.parameters[0], given.settings, kept, grad, wanted[3]
        ), None
    probs = probs.contiguous()
    grads = [positions_first(query), positions_first(key), positions_first(value)]
    for_epsilon, for_strength = (
        torch.zeros(query.shape[:2], dtype=torch.float64) if is_wanted else None
        for is_wanted in wanted[3:]
    )
    if query.numel() and key.numel():
        gradients = Gradients.of((query, key, value, grad), grads, for_epsilon, for_strength)
        kind, epsilon, strength = _rows_of(given)
        options = ScoreSettings(scale=given.scale)
        if kind == TV:  # the gradient of its strength is not told by the probabilities alone
            options = _as_read(given.settings, query, key)
        number = structured.NUMBERS[given.kind]
        shape = Shape.of(query, key, epsilon, options, number, strength)
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
    return *grads, summed(for_epsilon, given.epsilon), summed(for_strength, given.strength)


def _probs(given: Given, output: None, probs: Tensor, nothing: None) -> Tensor:
    if not given.kind:
        return probs
    return probs.transpose(-1, -2).flatten(2, 3)[:, :, : given.query.size(2)].contiguous()


_ATTENTION = function_of(
    Backend(
        "native",
        _forward,
        _backward,
        lambda given: (given.query.new_empty(_probs_size(given)), None),
        _probs,
        needs_output=False,
    )
)


def _of_epsilon(
    query: Tensor, key: Tensor, value: Tensor, epsilon: float | Tensor, options: ScoreSettings
) -> Tensor:
    # The operator has room for probabilities of all keys, not for a support whose size is found
    given = epsilon if isinstance(epsilon, Tensor) else None
    if is_plain(query, key, value, given, *options[:2], options.seed):
        return attention_rows.attend(query, key, value, epsilon, options)
    return _ATTENTION(query, key, value, *as_arguments(epsilon), None, 0.0, *options, "")


attention = attention_by(_of_epsilon, takes, TAKEN)


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

    def apply(
        query: Tensor, key: Tensor, value: Tensor, epsilon: float | Tensor, options: ScoreSettings
    ) -> Tensor:
        parameters = (*as_arguments(epsilon), *as_arguments(strength))
        return _ATTENTION(query, key, value, *parameters, *options, kind)

    attend = attention_by(apply, takes, TAKEN)
    return attend(query, key, value, epsilon, key_padding_mask, attn_mask, causal, scale)
