"""Gradients of alpha-entmax in operations that autograd follows, for second derivatives.

Backward passes compute their gradients in place, or in kernels, of which autograd sees nothing.
Where it is to see them, which is so with ``create_graph=True``, they take these functions: the
same formulas (see :mod:`fairseq_entmax.kernels.torch_ops`), slower and with more memory. All is
written in terms of the probabilities p, whose own derivative is that of the mapping again; so
gradients of any order are right.

A derivative of s = p ** (1 - epsilon) has p ** -epsilon, which grows without bound towards the
edge of the support, as second derivatives of the mapping do above alpha = 1.5. Outside it all is 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

# 1/2!, 1/3!, ... of the series of phi(x) = (exp(-x) - 1 + x) / x**2, signs apart. The closed form
# loses digits near 0, and its derivative loses more.
PHI_COEFFICIENTS = tuple((-1.0) ** k / math.factorial(k + 2) for k in range(14))
PHI_SERIES_BELOW = 0.5


def are_wanted(grad: Tensor) -> bool:
    """Whether a backward pass given ``grad`` is to run in these operations.

    It is where its own derivative may be asked for, and where torch maps it over many gradients
    at once (``is_grads_batched=True``, ``vectorize=True``), which kernels do not take.
    """
    # What stands for many gradients has no memory of its own
    return torch.is_grad_enabled() or not torch._C._has_storage(grad)


def gradients(
    probs: Tensor, epsilon: float | Tensor, grad: Tensor, for_scores: bool, for_alpha: bool
) -> tuple[Tensor | None, Tensor | None]:
    """As :meth:`fairseq_entmax.kernels.backends.Rows.gradients`."""
    rows = alpha_gradient(probs, epsilon, grad) if for_alpha else None
    return scores_gradient(probs, epsilon, grad) if for_scores else None, rows


def scores_gradient(probs: Tensor, epsilon: float | Tensor, grad: Tensor) -> Tensor:
    """As :func:`fairseq_entmax.kernels.torch_ops.scores_gradient`."""
    sensitivity = _sensitivity(probs, epsilon)
    moved = sensitivity * grad
    total = sensitivity.sum(-1, keepdim=True)
    mean = moved.sum(-1, keepdim=True) / torch.where(total == 0, 1.0, total)
    return moved - sensitivity * mean


def _sensitivity(probs: Tensor, epsilon: float | Tensor) -> Tensor:
    """``p ** (1 - epsilon)`` on the support, zero elsewhere; NaN stays."""
    if isinstance(epsilon, float) and epsilon == 0.0:
        return probs
    # Not a power: torch takes p ** 0 for a constant, also where it is the exponent that moves
    power = (_logs(probs) * (1.0 - epsilon)).exp()
    return torch.where(probs > 0, power, probs.detach())


def _logs(probs: Tensor) -> Tensor:
    """``log p`` on the support, 0 elsewhere."""
    tiny = torch.finfo(probs.dtype).tiny
    return torch.where(probs > 0, probs, 1.0).clamp(min=tiny).log()


def alpha_gradient(probs: Tensor, epsilon: float | Tensor, grad: Tensor) -> Tensor:
    """As :func:`fairseq_entmax.kernels.torch_ops.alpha_gradient`."""
    centred = grad - (probs * grad).sum(-1, keepdim=True)
    logs = _logs(probs)
    weight = probs * logs * logs * _phi(epsilon * logs)
    entropy = -(probs * logs).sum(-1, keepdim=True)
    mean_weight = weight.sum(-1, keepdim=True)
    moved = probs * centred * (1.0 - epsilon * logs)
    above = 1.0 + epsilon * entropy
    result = mean_weight * moved.sum(-1, keepdim=True)
    result = result - above * (weight * centred).sum(-1, keepdim=True)
    return result / (above + epsilon * epsilon * mean_weight)


def alpha_derivative(probs: Tensor, epsilon: float | Tensor) -> Tensor:
    """How the probabilities move with alpha, ``(..., keys)``; see ``torch_ops.alpha_gradient``."""
    logs = _logs(probs)
    weight = logs * logs * _phi(epsilon * logs)
    above = 1.0 - epsilon * (probs * logs).sum(-1, keepdim=True)
    mean_weight = (probs * weight).sum(-1, keepdim=True)
    moved = (1.0 - epsilon * logs) * mean_weight - weight * above
    return probs * moved / (above + epsilon * epsilon * mean_weight)


def _phi(x: Tensor) -> Tensor:
    """``(exp(-x) - 1 + x) / x**2`` for x <= 0, 1/2 at 0."""
    is_near = x > -PHI_SERIES_BELOW
    # Each formula gets numbers of its own only: what is not taken is not to have a gradient
    near, far = torch.where(is_near, x, 0.0), torch.where(is_near, -1.0, x)
    series = torch.full_like(near, PHI_COEFFICIENTS[-1])
    for coefficient in reversed(PHI_COEFFICIENTS[:-1]):
        series = series * near + coefficient
    return torch.where(is_near, series, (torch.expm1(-far) + far) / (far * far))


# Probabilities, parameters, gradient for the probabilities, and which gradients are wanted: those for
# the scores, and of each row for each parameter
RowGradients = Callable[
    [Tensor, Sequence[float | Tensor], Tensor, Sequence[bool]], Sequence[Tensor | None]
]


def of_entmax(
    probs: Tensor, parameters: Sequence[float | Tensor], grad: Tensor, wanted: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of alpha-entmax, of which epsilon is the one parameter."""
    return gradients(probs, parameters[0], grad, wanted[0], wanted[1])


class _Known(torch.autograd.Function):
    """Probabilities that are known already, as a function of what they come from."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        scores: Tensor, probs: Tensor, of_rows: RowGradients, *parameters: float | Tensor
    ) -> Tensor:
        return probs.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, _, ctx.of_rows, *parameters = inputs
        tensors = [value if isinstance(value, Tensor) else None for value in parameters]
        ctx.save_for_backward(output, *tensors)
        # A tensor is to come from what was saved
        ctx.numbers = [None if isinstance(value, Tensor) else value for value in parameters]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        probs, *tensors = ctx.saved_tensors
        pairs = zip(ctx.numbers, tensors, strict=True)
        given = [number if tensor is None else tensor for number, tensor in pairs]
        wanted = [True, *ctx.needs_input_grad[3:]]
        for_scores, *rows = ctx.of_rows(probs, given, grad, wanted)
        summed = [
            None if row is None else row.sum_to_size(parameter.shape)
            for row, parameter in zip(rows, given, strict=True)
        ]
        return for_scores, None, None, *summed


def attention_gradients(
    inputs: tuple[Tensor, Tensor, Tensor],
    parameters: Sequence[float | Tensor],
    probs: Tensor,
    grad: Tensor,
    scale: float,
    of_rows: RowGradients = of_entmax,
) -> tuple[Tensor | None, ...]:
    """The gradients of attention for its inputs, and for each parameter that is a tensor.

    Masks need not be known: where they leave a key out its probability is 0, and takes no part.

    Args:
        inputs: query, key and value, ``(batch, heads, positions, head_dim)``, as the kernel was
            given them.
        parameters: of the mapping: numbers, or tensors of one number or of one for each head, of
            any shape.
        probs: ``(batch, heads, queries, keys)``, float32, without a graph.
        grad: of the output, ``(batch, heads, queries, head_dim)``.
        scale: of the scores.
        of_rows: the gradients of the mapping, in operations that autograd follows.
    """
    wide, heads = probs.dtype, inputs[0].size(1)
    query, key, value, grad = (tensor.to(wide) for tensor in (*inputs, grad))
    of_heads = [
        one.to(wide).reshape(-1, 1, 1) if isinstance(one, Tensor) else one for one in parameters
    ]
    probs = _Known.apply(scale * (query @ key.mT), probs, of_rows, *of_heads)
    wanted = [True, *(isinstance(one, Tensor) for one in parameters)]
    for_scores, *rows = of_rows(probs, of_heads, grad @ value.mT, wanted)
    assert for_scores is not None
    for_scores = scale * for_scores
    found = (for_scores @ key, for_scores.mT @ query, probs.mT @ grad)
    return (
        *(one.to(given.dtype) for one, given in zip(found, inputs, strict=True)),
        *(_of_heads(row, one, heads) for row, one in zip(rows, parameters, strict=True)),
    )


def _of_heads(rows: Tensor | None, parameter: float | Tensor, heads: int) -> Tensor | None:
    """The gradient of a parameter, from what each row gives."""
    if rows is None or not isinstance(parameter, Tensor):
        return None
    each = rows.sum((0, 2), dtype=torch.float64).view(heads)
    each = each if parameter.numel() == heads else each.sum()
    return each.reshape(parameter.shape).to(parameter.dtype)
