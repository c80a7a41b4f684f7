"""Mappings of rows by a backend, as a differentiable function.

Keys are the last dimension, in float32 or float64. Parameters are numbers, or tensors with as many
dimensions as the scores. The backend computes first derivatives. If they need a graph themselves
(``create_graph=True``), torch's own operations compute them, which autograd can follow: they are
written in terms of the probabilities, whose derivative is again that of the mapping.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.kernels import torch_structured
from fairseq_entmax.kernels.backends import Rows
from fairseq_entmax.kernels.structure import TV


def map_rows(
    backend: Rows,
    scores: Tensor,
    structure: str,
    epsilon: float | Tensor,
    strength: float | Tensor = 0.0,
) -> Tensor:
    """The probabilities, differentiable in scores, epsilon and strength."""
    # Faster for the steps of a beam search, which do little else; but a trace would not show it
    if not (torch.is_grad_enabled() or torch.jit.is_tracing()):
        return backend.probabilities(scores, structure, _as(scores, epsilon), _as(scores, strength))
    probs: Tensor = _Rows.apply(backend, scores, structure, epsilon, strength)
    return probs


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        backend: Rows,
        scores: Tensor,
        structure: str,
        epsilon: float | Tensor,
        strength: float | Tensor,
    ) -> Tensor:
        parameters = _as(scores, epsilon), _as(scores, strength)
        probs = backend.probabilities(scores, structure, *parameters)
        masked = scores == -math.inf if structure == TV and ctx.needs_input_grad[4] else None
        (first, *numbers), (second, *more) = as_tensor(epsilon), as_tensor(strength)
        ctx.backend, ctx.structure, ctx.numbers = backend, structure, numbers + more
        ctx.save_for_backward(probs, masked, first, second)
        return probs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        probs, masked, *tensors = ctx.saved_tensors
        epsilon, strength = (
            number if tensor is None else _as(probs, tensor)
            for number, tensor in zip(ctx.numbers, tensors, strict=True)
        )
        wants = ctx.needs_input_grad
        followed = torch_structured.followed_gradients
        gradients = followed if torch.is_grad_enabled() else ctx.backend.gradients
        for_scores, *rows = gradients(
            *(probs, ctx.structure, epsilon, strength, masked, grad, (wants[1], *wants[3:]))
        )
        return None, for_scores, None, *map(_summed, rows, tensors)


def as_tensor(parameter: float | Tensor) -> tuple[Tensor | None, float]:
    """The parameter if it is a tensor, else None; and the parameter if it is a number, else 0."""
    return (parameter, 0.0) if isinstance(parameter, Tensor) else (None, parameter)


def _as(scores: Tensor, parameter: float | Tensor) -> float | Tensor:
    return parameter.to(scores.dtype) if isinstance(parameter, Tensor) else parameter


def _summed(rows: Tensor | None, parameter: Tensor | None) -> Tensor | None:
    """The gradient of a parameter, summed over rows, in float64 on devices that have it."""
    if rows is None or parameter is None:
        return None
    sizes = zip(parameter.shape, rows.shape, strict=True)
    shared = [dim for dim, (size, other) in enumerate(sizes) if size == 1 and other != 1]
    if shared:
        dtype = torch.float64 if rows.device.type in ("cpu", "cuda") else rows.dtype
        rows = rows.sum(shared, keepdim=True, dtype=dtype)
    return rows.to(parameter.dtype)
