"""Mappings from scores to probabilities, as functions.

All of them are alpha-entmax (Peters et al. 2019; Correia et al. 2019, eq. 5) at one value
of alpha or at a learned one: softmax is alpha = 1, sparsemax alpha = 2. They share these
rules. ``scores`` is a floating-point tensor of any shape, and ``-inf`` masks a key: it
gets exactly 0. A row with every key masked gives zeros, and zero gradients, not NaN.
float16 and bfloat16 are computed in float32 and returned in the dtype given.

What is no number shows, as with :func:`torch.softmax`, whatever kernel runs. A row with NaN or
``+inf`` among its scores is NaN at every key, masked ones too, and so are its gradients. So is a
row whose alpha is NaN, unless every key of it is masked; the gradient of such an alpha is NaN.
Rows with an alpha of their own that is a number are not touched by it. NaN or infinity in the
incoming gradient of a row leaves no finite number in the gradient of its scores.

Gradients are differentiable again, in scores and alpha, to any order: with ``create_graph=True``
the backward pass is computed in operations that autograd follows, more slowly. Second derivatives
grow without bound at the edge of the support above alpha = 1.5, and are 0 for sparsemax, which
is linear between its bends. Alpha-entmax has forward-mode derivatives too; other mappings and the
losses refuse them with an error.

All of them work under ``torch.compile``, with ``fullgraph=True`` and an alpha that is a tensor too,
``torch.export``, ``torch.func.grad``, ``torch.func.jacrev`` and ``torch.vmap``, where each is one
operation (:mod:`fairseq_entmax.kernels.operators`). What a tensor's values are is not looked at
there: a parameter out of range is no error, and its result is undefined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fairseq_entmax import kernels
from fairseq_entmax.kernels import derivatives
from fairseq_entmax.kernels.operators import (
    Differentiable,
    Operator,
    as_arguments,
    by_samples,
    fake_gradient,
    followed,
    is_plain,
    leading,
    or_empty,
)

SMALLEST_ALPHA, LARGEST_ALPHA = 1.0, 2.0


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Softmax: alpha-entmax at alpha = 1. Never exactly zero, but for masked keys.

    Args:
        scores: any shape; ``-inf`` masks a key.
        dim: the dimension of the keys, from ``-scores.dim()`` to ``scores.dim() - 1``.

    Returns:
        Probabilities of the shape and dtype of ``scores``, each row summing to 1.

    Raises:
        ValueError: ``scores`` is not floating point, or ``dim`` is out of range.
    """
    return map_scores(scores, 1.0, dim)


def sparsemax(scores: Tensor, dim: int = -1) -> Tensor:
    """Sparsemax (Martins and Astudillo 2016): alpha-entmax at alpha = 2.

    Arguments, result and errors are those of :func:`softmax`.
    """
    return map_scores(scores, 2.0, dim)


def entmax15(scores: Tensor, dim: int = -1) -> Tensor:
    """1.5-entmax (Peters et al. 2019): alpha-entmax at alpha = 1.5.

    Arguments, result and errors are those of :func:`softmax`.
    """
    return map_scores(scores, 1.5, dim)


def entmax(scores: Tensor, alpha: float | Tensor = 1.5, dim: int = -1) -> Tensor:
    """Alpha-entmax for any alpha in the closed interval [1, 2].

    Args:
        scores: any shape; ``-inf`` masks a key.
        alpha: a number in [1, 2], or a floating-point tensor of such numbers that
            broadcasts against ``scores`` with size 1 at ``dim`` (for attention scores
            ``(batch, heads, queries, keys)`` and one alpha per head: ``(heads, 1, 1)``).
            A tensor may require a gradient.
        dim: the dimension of the keys, from ``-scores.dim()`` to ``scores.dim() - 1``.

    Returns:
        Probabilities of the shape and dtype of ``scores``, each row summing to 1.

    Raises:
        ValueError: ``scores`` is not floating point; ``dim`` is out of range; ``alpha`` is
            NaN, outside [1, 2], or does not broadcast. Looking at the values of a tensor
            waits for its device, and is left out where operations are traced or transformed;
            :func:`map_scores` does not look.

    Source:
        Correia, Niculae, Martins 2019, *Adaptively Sparse Transformers*, eq. 5 to 7 and
        Proposition 1.
    """
    check_dim(scores, dim)
    return map_scores(scores, checked(alpha, check_alpha, "alpha", scores, dim), dim)


def map_scores(scores: Tensor, alpha: float | Tensor, dim: int = -1) -> Tensor:
    """:func:`entmax` without a look at the values of ``alpha``.

    For callers whose alpha is in [1, 2] by construction; outside, the result is undefined.
    """
    check_dim(scores, dim)
    if isinstance(alpha, Tensor) and alpha.dim() < scores.dim():
        alpha = alpha.view((1,) * (scores.dim() - alpha.dim()) + tuple(alpha.shape))
    if dim not in (-1, scores.dim() - 1):
        if isinstance(alpha, Tensor):
            alpha = alpha.transpose(dim, -1)
        return map_scores(scores.transpose(dim, -1), alpha).transpose(dim, -1)
    wide = scores.to(torch.float64 if scores.dtype == torch.float64 else torch.float32)
    tensor, number = as_arguments(alpha)
    probs: Tensor = ENTMAX(wide, tensor, number)
    return probs.to(scores.dtype)


def check_alpha(alpha: float | str, name: str = "alpha") -> float:
    """Return ``alpha`` as a float.

    Raises:
        ValueError: it is not a number in [1, 2].
    """
    try:
        number = float(alpha)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be a number from 1 (softmax) to 2 (sparsemax), not {alpha!r}"
        ) from None
    # a comparison with NaN is false
    if not SMALLEST_ALPHA <= number <= LARGEST_ALPHA:
        raise ValueError(f"{name} must be from 1 (softmax) to 2 (sparsemax), not {number}")
    return number


def check_dim(scores: Tensor, dim: int) -> None:
    """Raise ValueError unless ``scores`` is floating point and has a dimension ``dim``."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        kind = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"scores must be a floating-point tensor, not {kind}")
    if scores.dim() == 0:
        raise ValueError("scores must have a dimension for the keys, not be a single number")
    if not -scores.dim() <= dim < scores.dim():
        raise ValueError(
            f"dim must be from {-scores.dim()} to {scores.dim() - 1} for scores of shape "
            f"{tuple(scores.shape)}, not {dim}"
        )


def checked(
    value: float | Tensor, check: Callable[..., float], name: str, scores: Tensor, dim: int
) -> float | Tensor:
    """Return a parameter, a number or a tensor of numbers, that a mapping of ``scores`` can have.

    Args:
        value: the parameter.
        check: returns one number as a float, or raises ValueError; what it allows is an interval.
        name: of the parameter.
        scores, dim: what it must broadcast against, with size 1 at ``dim``.

    Raises:
        ValueError: as ``check``; the parameter is a text; a tensor is not floating point, or does not broadcast.
    """
    if not isinstance(value, Tensor):
        plain = check(value, name)
        if isinstance(value, str):  # which a check takes, for mappings that are read from a text
            raise ValueError(
                f"{name} must be a number or a tensor of numbers, not a text: {value!r}"
            )
        return plain
    if not value.is_floating_point():
        raise ValueError(f"{name} must be a floating-point tensor, not {value.dtype}")
    keys_last = list(scores.shape)
    keys_last[dim] = 1
    beside = keys_last[len(keys_last) - value.dim() :]
    fits = value.dim() <= len(keys_last) and all(
        size == 1 or size == other  # a size that stands for any is found in no tuple
        for size, other in zip(value.shape, beside, strict=True)
    )
    if not fits:
        raise ValueError(
            f"{name} of shape {tuple(value.shape)} does not broadcast to {tuple(keys_last)}, the "
            f"shape of the scores with size 1 at dim {dim}"
        )
    if is_plain(value) and value.numel() > 0:
        # aminmax hands on NaN, which no interval has
        for number in torch.aminmax(value.detach()):
            check(number.item(), name)
    return value


def _epsilon(alpha: float | Tensor, dtype: torch.dtype) -> float | Tensor:
    # The subtraction is exact in the dtype of alpha
    return (alpha - 1.0).to(dtype) if isinstance(alpha, Tensor) else alpha - 1.0


def _probabilities(scores: Tensor, alpha: Tensor | None, number: float) -> Tensor:
    epsilon = _epsilon(number if alpha is None else alpha, scores.dtype)
    return kernels.backend_for(scores, epsilon).probabilities(scores, epsilon)


def _gradients(
    probs: Tensor,
    alpha: Tensor | None,
    number: float,
    grad: Tensor,
    for_scores: bool,
    for_alpha: bool,
) -> tuple[Tensor | None, Tensor | None]:
    epsilon = _epsilon(number if alpha is None else alpha, probs.dtype)
    backend = kernels.backend_for(probs, epsilon)
    grad_scores, rows = backend.gradients(probs, epsilon, grad, for_scores, for_alpha)
    return grad_scores, summed(rows, alpha)


def _followed_gradients(
    probs: Tensor,
    alpha: Tensor | None,
    number: float,
    grad: Tensor,
    for_scores: bool,
    for_alpha: bool,
) -> tuple[Tensor, Tensor]:
    """As :func:`_gradients`, in operations that autograd follows."""
    epsilon = _epsilon(number if alpha is None else alpha, probs.dtype)
    grad_scores, rows = derivatives.gradients(probs, epsilon, grad, for_scores, for_alpha)
    return or_empty(grad_scores, probs), or_empty(summed(rows, alpha), probs)


class _Entmax(Differentiable):
    """Keys last, in float32 or float64; alpha None for the number, or of as many dimensions.

    Narrower scores are cast outside, so that the probabilities kept are those returned: through
    them the gradients can be differentiated again.
    """

    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[..., Tensor],
        scores: Tensor,
        alpha: Tensor | None,
        number: float,
    ) -> Tensor:
        probs = compute(scores, alpha, number)
        ctx.save_for_backward(probs, alpha)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(probs, alpha)
        ctx.number = number
        return probs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        probs, alpha = ctx.saved_tensors
        _, for_scores, for_alpha, _ = ctx.needs_input_grad
        grads = ENTMAX_GRADIENTS(probs, alpha, ctx.number, grad, for_scores, for_alpha)
        return None, grads[0] if for_scores else None, grads[1] if for_alpha else None, None

    @staticmethod
    def jvp(ctx: Any, _: None, scores: Tensor | None, alpha: Tensor | None, __: None) -> Tensor:
        """The derivative along tangents of the scores and of alpha."""
        probs, at = ctx.saved_tensors
        epsilon = _epsilon(ctx.number if at is None else at, probs.dtype)
        moved = torch.zeros_like(probs)
        if scores is not None:  # the Jacobian is symmetric
            moved = derivatives.scores_gradient(probs, epsilon, scores)
        if alpha is not None:
            moved = moved + derivatives.alpha_derivative(probs, epsilon) * alpha.to(probs.dtype)
        return moved


def _differentiated(compute: Callable[..., Tensor], *arguments: Any) -> Tensor:
    probs: Tensor = _Entmax.apply(compute, *arguments)
    return probs


def _batched(
    size: int,
    dims: tuple[int | None, ...],
    scores: Tensor,
    alpha: Tensor | None,
    number: float,
) -> tuple[Tensor, int]:
    scores = leading(scores, dims[0], size)
    alpha = None if alpha is None else leading(alpha, dims[1], size)
    return ENTMAX(scores, alpha, number), 0


def _batched_gradients(
    size: int,
    dims: tuple[int | None, ...],
    probs: Tensor,
    alpha: Tensor | None,
    number: float,
    grad: Tensor,
    *wanted: bool,
) -> tuple[tuple[Tensor, Tensor], tuple[int | None, ...]]:
    probs, grad = leading(probs, dims[0], size), leading(grad, dims[3], size)
    # One for each sample, also where all have the same: its gradient is each sample's
    alpha = None if alpha is None else leading(alpha, dims[1], size)
    grads = ENTMAX_GRADIENTS(probs, alpha, number, grad, *wanted)
    return by_samples(grads, wanted)


ENTMAX = Operator(
    "entmax",
    "(Tensor scores, Tensor? alpha, float number) -> Tensor",
    _probabilities,
    fake=lambda scores, alpha, number: fake_gradient(scores, True, scores),
    batched=_batched,
    differentiate=_differentiated,
)
ENTMAX_GRADIENTS = Operator(
    "entmax_gradients",
    "(Tensor probs, Tensor? alpha, float number, Tensor grad, bool for_scores, bool for_alpha)"
    " -> (Tensor, Tensor)",
    _gradients,
    fake=lambda probs, alpha, number, grad, for_scores, for_alpha: (
        fake_gradient(probs, for_scores, probs),
        fake_gradient(alpha, for_alpha, probs),
    ),
    batched=_batched_gradients,
    differentiate=followed(_followed_gradients),
    of_old_vmap=_followed_gradients,
)


def summed(rows: Tensor | None, parameter: Any) -> Tensor | None:
    """The gradient of a parameter, from what each row gives."""
    return None if rows is None else sum_to(rows, parameter.shape).to(parameter.dtype)


def sum_to(rows: Tensor, shape: torch.Size) -> Tensor:
    """Sum over the rows that share a parameter, in float64 where the device has it."""
    shared = [dim for dim, size in enumerate(shape) if size == 1 and rows.size(dim) != 1]
    if not shared:
        return rows
    wide = torch.float64 if rows.device.type in ("cpu", "cuda") else rows.dtype
    return rows.sum(shared, keepdim=True, dtype=wide)


def logit_of_alpha(alpha: float, name: str = "alpha") -> float:
    """The ``a`` with ``alpha = 1 + sigmoid(a)`` (Correia et al. 2019, eq. 10).

    Raises:
        ValueError: ``alpha`` is not strictly between 1 and 2, where ``a`` is infinite.
    """
    number = check_alpha(alpha, name)
    if not SMALLEST_ALPHA < number < LARGEST_ALPHA:
        raise ValueError(
            f"{name} must lie strictly between 1 and 2 where alpha is learned, not {number}: an "
            f"alpha that starts at an end never leaves it; for a fixed one use 'entmax:alpha={number:g}'"
        )
    return math.log(number - 1.0) - math.log(2.0 - number)
