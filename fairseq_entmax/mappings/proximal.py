"""The proximal operators in front of the mappings with structure, by themselves.

They follow the rules of :mod:`fairseq_entmax.mappings.structured`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.kernels import torch_oscar, torch_structured, torch_tv
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
        values: Tensor = _Prox.apply(wide, kind, strength)
        return values

    return keys_last(apply, scores, dim, strength)


class _Prox(torch.autograd.Function):
    """The proximal operators by themselves; arguments as for :class:`_Structured`."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, kind: str, strength: float | Tensor) -> Tensor:
        masked = scores == -math.inf
        broken = (scores.isnan() | (scores == math.inf)).any(-1, keepdim=True)
        # Sums over a thousand keys would leave three digits of float32
        has_float64 = scores.device.type in ("cpu", "cuda")
        numbers = scores.masked_fill(broken, 0.0)
        numbers = numbers.double() if has_float64 else numbers
        level = as_scores(strength, numbers)
        if scores.numel() == 0:
            values = scores.clone()
        elif kind == TV:
            # Around 0 a row has its digits
            top = numbers.amax(-1, keepdim=True)
            top = top.masked_fill(top == -math.inf, 0.0)
            values = torch_tv.prox_tv(numbers - top, level, masked)[0] + top
        else:
            values = torch_oscar.prox_oscar(numbers, level, masked)
        values = values.to(scores.dtype)
        values = values.masked_fill(broken, math.nan)
        ctx.kind = kind
        is_tensor = isinstance(strength, Tensor)
        ctx.number = None if is_tensor else strength
        ctx.save_for_backward(values, scores.sign(), masked, strength if is_tensor else None)
        return values

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        values, sign, masked, tensor = ctx.saved_tensors
        strength = ctx.number if tensor is None else tensor
        moved = torch.where(masked, 0.0, grad)
        if ctx.kind == TV:
            for_scores, rows = torch_tv.tv_gradients(values, masked, masked, moved)
        else:
            for_scores, rows = _oscar_gradients(values, sign, masked, moved)
        for_scores = torch_structured.unless_zero(strength, for_scores, moved)
        if not ctx.needs_input_grad[2]:
            return for_scores, None, None
        return for_scores, None, summed(rows, strength)


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
