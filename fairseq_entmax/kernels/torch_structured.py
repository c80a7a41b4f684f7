"""Mappings of rows in torch's own operations, with or without structure: the reference.

Everything works on the last dimension, in float32 or float64. A mapping with structure is a
proximal operator followed by alpha-entmax (Niculae and Blondel 2017 for alpha = 2; the optimality
conditions are the same for every alpha), except for sq-pnorm-max, which has its own threshold. The
gradients need only the probabilities: keys with equal, nonzero probabilities moved together.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from fairseq_entmax.kernels import derivatives, torch_ops, torch_pnorm
from fairseq_entmax.kernels.backends import Gradients
from fairseq_entmax.kernels.runs import first_of_each
from fairseq_entmax.kernels.structure import PNORM, TV, like_rows
from fairseq_entmax.kernels.torch_oscar import prox_ranks, rank_gradients
from fairseq_entmax.kernels.torch_tv import prox_tv, tv_gradients


def probabilities(
    scores: Tensor, structure: str, epsilon: float | Tensor, strength: float | Tensor = 0.0
) -> Tensor:
    """As :meth:`fairseq_entmax.kernels.backends.Rows.probabilities`."""
    if not structure:
        return torch_ops.probabilities(scores, epsilon)
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    top = scores.amax(-1, keepdim=True)  # NaN if a score is
    masked = scores == -math.inf
    without_keys = top == -math.inf
    broken = (~(top < math.inf) | _is_nan(epsilon) | _is_nan(strength)) & ~without_keys
    numbers = (scores - top).masked_fill(broken | without_keys, 0.0)
    epsilon, strength = _without_nan(epsilon, 1.0), _without_nan(strength, 1.0)
    if structure == PNORM:
        probs = torch_pnorm.probabilities(numbers, epsilon, strength)
    elif structure == TV:
        # Lower scores, far outside the support, are raised to this to keep sums over a run finite
        least = -math.sqrt(torch.finfo(scores.dtype).max)
        values, runs = prox_tv(numbers.clamp(min=least), strength, masked)
        probs = first_of_each(torch_ops.probabilities(values, epsilon), runs)
    else:
        order = numbers.argsort(dim=-1, descending=True, stable=True)
        values, runs = prox_ranks(numbers.gather(-1, order), strength, masked.gather(-1, order))
        # In their original places, so that at strength 0 the sums are those of alpha-entmax
        placed = torch.empty_like(values).scatter_(-1, order, values)
        ranked = torch_ops.probabilities(placed, epsilon).gather(-1, order)
        probs = torch.empty_like(ranked).scatter_(-1, order, first_of_each(ranked, runs))
    probs = probs.masked_fill(without_keys, 0.0)
    return probs.masked_fill_(broken, math.nan)


def gradients(
    probs: Tensor,
    structure: str,
    epsilon: float | Tensor,
    strength: float | Tensor,
    masked: Tensor | None,
    grad: Tensor,
    wanted: tuple[bool, bool, bool],
    alpha_gradient: Callable[..., Tensor] = torch_ops.alpha_gradient,
) -> Gradients:
    """As :meth:`fairseq_entmax.kernels.backends.Rows.gradients`."""
    if structure == PNORM:
        return torch_pnorm.gradients(probs, epsilon, strength, grad, wanted)
    for_scores = for_epsilon = for_strength = None
    if wanted[1]:
        for_epsilon = alpha_gradient(probs, epsilon, grad)
    if wanted[0] or wanted[2]:
        moved = derivatives.scores_gradient(probs, epsilon, grad)
        for_scores = moved
        if structure:
            alone = probs == 0.0
            if structure == TV:
                shared, for_strength = tv_gradients(probs, alone, masked, moved)
            else:
                shared, for_strength = rank_gradients(probs, alone, moved)
            # At strength 0 equal keys move together if the strength grows, alone if a score does
            for_scores = torch.where(like_rows(strength, moved) == 0.0, moved, shared)
    return for_scores if wanted[0] else None, for_epsilon, for_strength if wanted[2] else None


# In operations that autograd can follow, for gradients of gradients
followed_gradients = functools.partial(gradients, alpha_gradient=derivatives.alpha_gradient)


def _is_nan(parameter: float | Tensor) -> Tensor | bool:
    return parameter.isnan() if isinstance(parameter, Tensor) else math.isnan(parameter)


def _without_nan(parameter: float | Tensor, instead: float) -> float | Tensor:
    if isinstance(parameter, Tensor):
        return parameter.masked_fill(parameter.isnan(), instead)
    return instead if math.isnan(parameter) else parameter
