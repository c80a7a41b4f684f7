"""Mappings of rows by a backend, as differentiable functions.

Keys are last, numbers in float32 or float64. Parameters are numbers, or tensors of as many
dimensions as the scores. First derivatives are the backend's. Where a graph of them is asked for
(``create_graph=True``) they go through torch's own operations, of which autograd sees everything:
all is written in terms of the probabilities, whose own derivative is that of the mapping again.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.kernels import derivatives, torch_structured
from fairseq_entmax.kernels.backends import Rows, StructuredRows
from fairseq_entmax.kernels.structure import TV


class Entmax(torch.autograd.Function):
    """Alpha-entmax: of a backend, scores, and epsilon = alpha - 1."""

    @staticmethod
    def forward(ctx: Any, backend: Rows, scores: Tensor, epsilon: float | Tensor) -> Tensor:
        probs = backend.probabilities(scores, as_scores(epsilon, scores))
        tensor, ctx.number = as_tensor(epsilon)
        ctx.backend = backend
        ctx.save_for_backward(probs, tensor)
        return probs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        probs, tensor = ctx.saved_tensors
        epsilon = as_scores(ctx.number if tensor is None else tensor, probs)
        gradients = derivatives.gradients if torch.is_grad_enabled() else ctx.backend.gradients
        for_scores, rows = gradients(probs, epsilon, grad, *ctx.needs_input_grad[1:])
        return None, for_scores, summed(rows, tensor)


class Structured(torch.autograd.Function):
    """A mapping with structure: of a backend, scores, kind, epsilon and strength."""

    @staticmethod
    def forward(
        ctx: Any,
        backend: StructuredRows,
        scores: Tensor,
        kind: str,
        epsilon: float | Tensor,
        strength: float | Tensor,
    ) -> Tensor:
        parameters = as_scores(epsilon, scores), as_scores(strength, scores)
        probs = backend.probabilities(scores, kind, *parameters)
        masked = None
        if kind == TV and ctx.needs_input_grad[4]:
            masked = scores == -math.inf
        tensors, ctx.numbers = zip(as_tensor(epsilon), as_tensor(strength), strict=True)
        ctx.backend, ctx.kind = backend, kind
        ctx.save_for_backward(probs, masked, *tensors)
        return probs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        probs, masked, *tensors = ctx.saved_tensors
        epsilon, strength = (
            as_scores(number if tensor is None else tensor, probs)
            for number, tensor in zip(ctx.numbers, tensors, strict=True)
        )
        wanted = tuple(ctx.needs_input_grad[place] for place in (1, 3, 4))
        followed = torch_structured.followed_gradients
        gradients = followed if torch.is_grad_enabled() else ctx.backend.gradients
        for_scores, *rows = gradients(probs, ctx.kind, epsilon, strength, masked, grad, wanted)
        for_parameters = map(summed, rows, tensors)
        return None, for_scores, None, *for_parameters


def as_tensor(parameter: float | Tensor) -> tuple[Tensor | None, float]:
    """A tensor or None, and the number in place of None."""
    return (parameter, 0.0) if isinstance(parameter, Tensor) else (None, parameter)


def as_scores(parameter: float | Tensor, scores: Tensor) -> float | Tensor:
    """A parameter in the dtype of the scores, where it is a tensor."""
    return parameter.to(scores.dtype) if isinstance(parameter, Tensor) else parameter


def summed(rows: Tensor | None, parameter: Tensor | None) -> Tensor | None:
    """The gradient of a parameter, from what each row gives, in float64 where the device has it."""
    if rows is None or parameter is None:
        return None
    sizes = zip(parameter.shape, rows.shape, strict=True)
    shared = [dim for dim, (size, other) in enumerate(sizes) if size == 1 and other != 1]
    if shared:
        wide = torch.float64 if rows.device.type in ("cpu", "cuda") else rows.dtype
        rows = rows.sum(shared, keepdim=True, dtype=wide)
    return rows.to(parameter.dtype)
