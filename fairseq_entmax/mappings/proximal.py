"""The proximal operators in front of the mappings with structure, by themselves.

They follow the rules of :mod:`fairseq_entmax.mappings.structured`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.kernels import torch_oscar, torch_structured, torch_tv
from fairseq_entmax.kernels.operators import (
    Differentiable,
    Operator,
    as_arguments,
    by_samples,
    fake_gradient,
    followed,
    or_empty,
    samples_first,
)
from fairseq_entmax.kernels.structure import OSCAR, TV
from fairseq_entmax.mappings.functional import check_dim, checked
from fairseq_entmax.mappings.structured import as_scores, check_strength, keys_last, summed


def prox_tv(scores: Tensor, tv: float | Tensor = 0.1, dim: int = -1) -> Tensor:
    """The proximal operator of total variation, also known as fused lasso signal approximator.

    ``argmin_z 1/2 ||z - x||^2 + tv * sum_i |z_i+1 - z_i|``, exactly, for all rows at once.

    Args:
        scores, tv, dim: as for :func:`fusedmax`.

    Returns:
        z, of the shape and dtype of ``scores``, differentiable in both arguments to any order.
        Masked keys stay ``-inf`` and part their neighbours.

    Raises:
        ValueError: as :func:`fusedmax`.
    """
    return _prox(TV, scores, tv, "tv", dim)


def prox_oscar(scores: Tensor, oscar: float | Tensor = 0.01, dim: int = -1) -> Tensor:
    """The proximal operator of OSCAR's pairwise penalty.

    ``argmin_z 1/2 ||z - x||^2 + oscar * sum_i<j max(|z_i|, |z_j|)``: absolute values are sorted,
    lowered by ``oscar * (n - i)``, pooled until they fall, cut at 0, and get their signs back
    (Zhong and Kwok 2012). :func:`oscarmax` is not this and then sparsemax: see there.

    Arguments, result and errors are those of :func:`prox_tv`.
    """
    return _prox(OSCAR, scores, oscar, "oscar", dim)


def _prox(kind: str, scores: Tensor, strength: float | Tensor, name: str, dim: int) -> Tensor:
    check_dim(scores, dim)
    strength = checked(strength, check_strength, name, scores, dim)

    def apply(wide: Tensor, strength: float | Tensor) -> Tensor:
        values: Tensor = PROX(wide, kind, *as_arguments(strength))
        return values

    return keys_last(apply, scores, dim, strength)


def _values(scores: Tensor, kind: str, strength: Tensor | None, number: float) -> Tensor:
    masked = scores == -math.inf
    broken = (scores.isnan() | (scores == math.inf)).any(-1, keepdim=True)
    # Sums over a thousand keys would leave three digits of float32
    has_float64 = scores.device.type in ("cpu", "cuda")
    numbers = scores.masked_fill(broken, 0.0)
    numbers = numbers.double() if has_float64 else numbers
    level = as_scores(number if strength is None else strength, numbers)
    if scores.numel() == 0:
        values = scores.clone()
    elif kind == TV:
        # Around 0 a row has its digits
        top = numbers.amax(-1, keepdim=True)
        top = top.masked_fill(top == -math.inf, 0.0)
        values = torch_tv.prox_tv(numbers - top, level, masked)[0] + top
    else:
        values = torch_oscar.prox_oscar(numbers, level, masked)
    return values.to(scores.dtype).masked_fill(broken, math.nan)


def _gradients(
    values: Tensor,
    sign: Tensor,
    masked: Tensor,
    kind: str,
    strength: Tensor | None,
    number: float,
    grad: Tensor,
    for_scores: bool,
    for_strength: bool,
) -> tuple[Tensor | None, Tensor | None]:
    """In operations that autograd follows, too."""
    moved = torch.where(masked, 0.0, grad)
    if kind == TV:
        shared, rows = torch_tv.tv_gradients(values, masked, masked, moved)
    else:
        shared, rows = _oscar_gradients(values, sign, masked, moved)
    level = number if strength is None else strength
    return (
        torch_structured.unless_zero(level, shared, moved) if for_scores else None,
        summed(rows, strength) if for_strength else None,
    )


def _followed_gradients(values: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    for_scores, for_strength = _gradients(values, *others)
    return or_empty(for_scores, values), or_empty(for_strength, values)


class _Prox(Differentiable):
    """Keys last, in float32 or float64; the strength a number, or of as many dimensions."""

    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[..., Tensor],
        scores: Tensor,
        kind: str,
        strength: Tensor | None,
        number: float,
    ) -> Tensor:
        values = compute(scores, kind, strength, number)
        ctx.kind, ctx.number = kind, number
        ctx.save_for_backward(values, scores.sign(), scores == -math.inf, strength)
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, sign, masked, strength = ctx.saved_tensors
        wanted = tuple(ctx.needs_input_grad[place] for place in (1, 3))
        given = (values, sign, masked, ctx.kind, strength, ctx.number)
        grads = PROX_GRADIENTS(*given, grad, *wanted)
        for_scores, for_strength = (
            one if is_wanted else None for one, is_wanted in zip(grads, wanted, strict=True)
        )
        return None, for_scores, None, for_strength, None


def _oscar_gradients(
    values: Tensor, sign: Tensor, masked: Tensor, moved: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients through the proximal operator of OSCAR, for scores and strength."""
    sizes = values.detach().abs().masked_fill(masked, -math.inf)
    is_cut = sizes == 0.0
    sign = torch.where(is_cut, 0.0, sign)
    for_sizes, for_strength = torch_oscar.rank_gradients(sizes, masked | is_cut, sign * moved)
    # A group pays for the keys behind each of its own, of which rank i has n - 1 - i
    behind = (~masked).sum(-1, keepdim=True) - 1
    for_strength = for_strength - behind * (sign * moved).sum(-1, keepdim=True)
    return sign * for_sizes, for_strength


def _batched_gradients(
    size: int, dims: tuple[int | None, ...], *arguments: Any
) -> tuple[Any, tuple[int | None, ...]]:
    return by_samples(PROX_GRADIENTS(*samples_first(size, dims, arguments)), arguments[-2:])


PROX: Operator = Operator(
    "prox",
    "(Tensor scores, str kind, Tensor? strength, float number) -> Tensor",
    _values,
    fake=lambda scores, *others: fake_gradient(scores, True, scores),
    batched=lambda size, dims, *arguments: (PROX(*samples_first(size, dims, arguments)), 0),
    differentiate=lambda compute, *arguments: _Prox.apply(compute, *arguments),
)
PROX_GRADIENTS: Operator = Operator(
    "prox_gradients",
    "(Tensor values, Tensor sign, Tensor masked, str kind, Tensor? strength, float number, "
    "Tensor grad, bool for_scores, bool for_strength) -> (Tensor, Tensor)",
    _gradients,
    fake=lambda values, sign, masked, kind, strength, number, grad, for_scores, for_strength: (
        fake_gradient(values, for_scores, values),
        fake_gradient(strength, for_strength, values),
    ),
    batched=_batched_gradients,
    differentiate=followed(_followed_gradients),
    of_old_vmap=_followed_gradients,
)
