"""Gradients of attention in operations that autograd follows, whatever kernel has computed it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.kernels import derivatives, torch_structured
from fairseq_entmax.kernels.dropout import factors as factors_of
from fairseq_entmax.kernels.operators import (
    Differentiable,
    Operator,
    as_arguments,
    fake_gradient,
    samples_first,
)


def _rows(
    probs: Tensor,
    kind: str,
    parameters: Sequence[float | Tensor],
    masked: Tensor | None,
    grad: Tensor,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The gradients of the mapping; ``kind`` is empty for alpha-entmax, which has no strength."""
    epsilon, strength = parameters
    if kind:
        return torch_structured.followed_gradients(
            probs, kind, epsilon, strength, masked, grad, wanted
        )
    return *derivatives.gradients(probs, epsilon, grad, *wanted[:2]), None


class _Known(Differentiable):
    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[..., Tensor],
        scores: Tensor,
        probs: Tensor,
        kind: str,
        epsilon: Tensor | None,
        epsilon_number: float,
        strength: Tensor | None,
        strength_number: float,
        masked: Tensor | None,
    ) -> Tensor:
        numbers = epsilon_number, strength_number
        output = compute(
            scores, probs, kind, epsilon, epsilon_number, strength, strength_number, masked
        )
        ctx.kind, ctx.numbers = kind, numbers
        ctx.save_for_backward(output, epsilon, strength, masked)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        probs, *tensors, masked = ctx.saved_tensors
        parameters = [
            number if tensor is None else tensor
            for number, tensor in zip(ctx.numbers, tensors, strict=True)
        ]
        wanted = (True, ctx.needs_input_grad[4], ctx.needs_input_grad[6])
        for_scores, *rows = _rows(probs, ctx.kind, parameters, masked, grad, wanted)
        for_epsilon, for_strength = (
            None if row is None or tensor is None else row.sum_to_size(tensor.shape)
            for row, tensor in zip(rows, tensors, strict=True)
        )
        return None, for_scores, None, None, for_epsilon, None, for_strength, None, None


# Probabilities that are known already, as a function of the scores and parameters they come from
_KNOWN: Operator = Operator(
    "known",
    "(Tensor scores, Tensor probs, str kind, Tensor? epsilon, float epsilon_number, "
    "Tensor? strength, float strength_number, Tensor? masked) -> Tensor",
    lambda scores, probs, *others: probs.clone(),
    fake=lambda scores, probs, *others: fake_gradient(probs, True, probs),
    batched=lambda size, dims, *arguments: (_KNOWN(*samples_first(size, dims, arguments)), 0),
    differentiate=lambda compute, *arguments: _Known.apply(compute, *arguments),
)


def attention_gradients(
    inputs: tuple[Tensor, Tensor, Tensor],
    parameters: tuple[float | Tensor, float | Tensor],
    probs: Tensor,
    grad: Tensor,
    scale: float,
    kind: str = "",
    masked: Tensor | None = None,
    factors: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """The gradients of attention for its inputs, and for each parameter that is a tensor.

    Masks need not be known but where ``kind`` asks for them: where they leave a key out its
    probability is 0, and takes no part.

    Args:
        inputs: query, key and value, ``(batch, heads, positions, head_dim)``, as the kernel was
            given them.
        parameters: epsilon and strength: numbers, or tensors of one number or of one for each head.
        probs: ``(batch, heads, queries, keys)``, float32, without a graph.
        grad: of the output, ``(batch, heads, queries, head_dim)``.
        scale: of the scores.
        kind: of structure; empty for alpha-entmax.
        masked: as :meth:`fairseq_entmax.kernels.backends.StructuredRows.gradients` wants it.
        factors: as :func:`dropped` returns them.
    """
    wide, heads = probs.dtype, inputs[0].size(1)
    query, key, value, grad = (tensor.to(wide) for tensor in (*inputs, grad))
    of_heads = [
        one.to(wide).reshape(1, -1, 1, 1) if isinstance(one, Tensor) else one for one in parameters
    ]
    epsilon, strength = map(as_arguments, of_heads)
    scores = scale * (query @ key.mT)
    probs = _KNOWN(scores, probs, kind, *epsilon, *strength, masked)
    wanted = (True, epsilon[0] is not None, strength[0] is not None)
    for_probs, weights = grad @ value.mT, probs
    if factors is not None:
        for_probs, weights = for_probs * factors, probs * factors
    for_scores, *rows = _rows(probs, kind, of_heads, masked, for_probs, wanted)
    assert for_scores is not None
    for_scores = scale * for_scores
    found = (for_scores @ key, for_scores.mT @ query, weights.mT @ grad)
    return (
        *(one.to(given.dtype) for one, given in zip(found, inputs, strict=True)),
        *(_of_heads(row, one, heads) for row, one in zip(rows, parameters, strict=True)),
    )


def dropped(probs: Tensor, dropout: float, seed: Tensor | None) -> Tensor | None:
    """What dropout multiplies probabilities ``(batch, heads, queries, keys)`` by; None without it."""
    if not dropout or seed is None:
        return None
    batch, heads, queries, keys = probs.shape
    return factors_of((batch, heads, queries, keys), dropout, seed, probs.device)


def _of_heads(rows: Tensor | None, parameter: float | Tensor, heads: int) -> Tensor | None:
    """The gradient of a parameter, from what each row gives."""
    if rows is None or not isinstance(parameter, Tensor):
        return None
    each = rows.sum((0, 2), dtype=torch.float64).view(heads)
    each = each if parameter.numel() == heads else each.sum()
    return each.reshape(parameter.shape).to(parameter.dtype)
