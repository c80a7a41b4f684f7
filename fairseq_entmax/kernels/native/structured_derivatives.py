"""Gradients of attention with structure in operations that autograd follows, for second derivatives.

As :func:`fairseq_entmax.kernels.derivatives.attention_gradients`, in the probabilities that the
library kept.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.kernels import torch_structured


class _Known(torch.autograd.Function):
    """Probabilities that are known already, as a function of what they come from."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        scores: Tensor,
        epsilon: float | Tensor,
        strength: float | Tensor,
        probs: Tensor,
        masked: Tensor | None,
        kind: str,
    ) -> Tensor:
        return probs.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, epsilon, strength, _, masked, kind = inputs
        tensors = [value if isinstance(value, Tensor) else None for value in (epsilon, strength)]
        ctx.save_for_backward(output, masked, *tensors)
        ctx.kind, ctx.numbers = kind, (epsilon, strength)
        # A tensor is to come from what was saved
        ctx.numbers = [None if isinstance(value, Tensor) else value for value in ctx.numbers]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        probs, masked, *tensors = ctx.saved_tensors
        pairs = zip(ctx.numbers, tensors, strict=True)
        given = [number if tensor is None else tensor for number, tensor in pairs]
        epsilon, strength = given
        for_scores, *rows = torch_structured.gradients(
            probs, ctx.kind, epsilon, strength, masked, grad, ctx.needs_input_grad[:3]
        )
        summed = [
            None if row is None else row.sum_to_size(parameter.shape)
            for row, parameter in zip(rows, given, strict=True)
        ]
        return for_scores, *summed, None, None, None


def attention_gradients(
    inputs: tuple[Tensor, Tensor, Tensor],
    kind: str,
    parameters: tuple[float | Tensor, float | Tensor],
    probs: Tensor,
    masked: Tensor | None,
    grad: Tensor,
    scale: float,
) -> tuple[Tensor | None, ...]:
    """The gradients of attention for its inputs, and for the parameters that are tensors.

    Args:
        inputs: query, key and value, ``(batch, heads, positions, head_dim)``, float32.
        kind: of structure.
        parameters: epsilon and strength: a number, or a tensor of one or of one for each head.
        probs: ``(batch, heads, queries, keys)``, without a graph.
        masked: of the shape of ``probs`` or broadcast to it, true at masked keys; None without.
        grad: of the output, ``(batch, heads, queries, head_dim)``.
        scale: of the scores.
    """
    query, key, value = inputs
    heads = query.size(1)
    epsilon, strength = (
        p.to(probs.dtype).reshape(-1, 1, 1) if isinstance(p, Tensor) else p for p in parameters
    )
    if masked is not None:
        masked = masked.expand(probs.shape)
    probs = _Known.apply(scale * (query @ key.mT), epsilon, strength, probs, masked, kind)
    wanted = True, isinstance(epsilon, Tensor), isinstance(strength, Tensor)
    for_scores, *rows = torch_structured.gradients(
        probs, kind, epsilon, strength, masked, grad @ value.mT, wanted
    )
    assert for_scores is not None
    for_scores = scale * for_scores
    summed: list[Tensor | None] = []
    for row, parameter in zip(rows, parameters, strict=True):
        if row is None or not isinstance(parameter, Tensor):
            summed.append(None)
            continue
        each = row.sum((0, 2), dtype=torch.float64).view(heads)
        each = each if parameter.numel() == heads else each.sum()
        summed.append(each.reshape(parameter.shape).to(parameter.dtype))
    return for_scores @ key, for_scores.mT @ query, probs.mT @ grad, *summed
