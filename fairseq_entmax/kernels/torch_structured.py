"""Mappings with structure in torch's own operations, and their gradients.

Everything works on the last dimension, in float32 or float64. A mapping is a proximal operator
and then alpha-entmax (Niculae and Blondel 2017 for alpha = 2; the same optimality conditions hold
for every alpha), but for sq-pnorm-max, which has a threshold of its own. The gradients need the
probabilities alone: what is equal and not zero in them moved together.

:func:`followed_gradients` is what autograd follows, for gradients of gradients, where a kernel has
computed what it is given.
"""

from __future__ import annotations

import math
from types import ModuleType

import torch
from torch import Tensor

from fairseq_entmax.kernels import derivatives, torch_ops, torch_pnorm
from fairseq_entmax.kernels.runs import first_of_each
from fairseq_entmax.kernels.structure import PNORM, TV, like_rows
from fairseq_entmax.kernels.torch_oscar import prox_ranks, rank_gradients
from fairseq_entmax.kernels.torch_tv import prox_tv, tv_gradients


def takes(scores: Tensor, kind: str) -> bool:
    """Whether the functions are for such scores: for all in float32 and float64."""
    return True


def probabilities(
    scores: Tensor, kind: str, epsilon: float | Tensor, strength: float | Tensor
) -> Tensor:
    """As :meth:`fairseq_entmax.kernels.backends.StructuredRows.probabilities`."""
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    top = scores.amax(-1, keepdim=True)  # NaN where a score is
    masked = scores == -math.inf
    without_keys = top == -math.inf
    broken = (
        (~(top < math.inf)).logical_or(_is_nan(epsilon, top)).logical_or(_is_nan(strength, top))
    )
    broken = broken & ~without_keys
    numbers = (scores - top).masked_fill(broken | without_keys, 0.0)
    epsilon, strength = _without_nan(epsilon, 1.0), _without_nan(strength, 1.0)
    if kind == PNORM:
        probs = torch_pnorm.probabilities(numbers, epsilon, strength)
    elif kind == TV:
        # Further below no key is in the support, and sums over a run are to stay finite
        least = -math.sqrt(torch.finfo(scores.dtype).max)
        values, runs = prox_tv(numbers.clamp(min=least), strength, masked)
        probs = first_of_each(torch_ops.probabilities(values, epsilon), runs)
    else:
        order = numbers.argsort(dim=-1, descending=True, stable=True)
        values, runs = prox_ranks(numbers.gather(-1, order), strength, masked.gather(-1, order))
        # In their own places, so that without a strength the sums are those of alpha-entmax
        placed = torch.empty_like(values).scatter_(-1, order, values)
        ranked = torch_ops.probabilities(placed, epsilon).gather(-1, order)
        probs = torch.empty_like(ranked).scatter_(-1, order, first_of_each(ranked, runs))
    probs = probs.masked_fill(without_keys, 0.0)
    return probs.masked_fill_(broken, math.nan)


def gradients(
    probs: Tensor,
    kind: str,
    epsilon: float | Tensor,
    strength: float | Tensor,
    masked: Tensor | None,
    grad: Tensor,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """As :meth:`fairseq_entmax.kernels.backends.StructuredRows.gradients`."""
    return _gradients(torch_ops, probs, kind, epsilon, strength, masked, grad, wanted)


def followed_gradients(
    probs: Tensor,
    kind: str,
    epsilon: float | Tensor,
    strength: float | Tensor,
    masked: Tensor | None,
    grad: Tensor,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """As :func:`gradients`, in operations that autograd follows."""
    return _gradients(derivatives, probs, kind, epsilon, strength, masked, grad, wanted)


def _gradients(
    rows: ModuleType,
    probs: Tensor,
    kind: str,
    epsilon: float | Tensor,
    strength: float | Tensor,
    masked: Tensor | None,
    grad: Tensor,
    wanted: tuple[bool, bool, bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """By the gradients of alpha-entmax that ``rows`` has."""
    if kind == PNORM:
        return torch_pnorm.gradients(probs, epsilon, strength, grad, wanted)
    for_scores = for_epsilon = for_strength = None
    if wanted[1]:
        for_epsilon = rows.alpha_gradient(probs, epsilon, grad)
    if wanted[0] or wanted[2]:
        moved = rows.scores_gradient(probs, epsilon, grad)
        parts = (_tv_gradients if kind == TV else _oscar_gradients)(probs, strength, masked, moved)
        for_scores, for_strength = parts
    return for_scores if wanted[0] else None, for_epsilon, for_strength if wanted[2] else None


def _tv_gradients(
    probs: Tensor, strength: float | Tensor, masked: Tensor | None, moved: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients for scores and strength, from those for the smoothed scores."""
    for_scores, for_strength = tv_gradients(probs, probs == 0.0, masked, moved)
    return unless_zero(strength, for_scores, moved), for_strength


def _oscar_gradients(
    probs: Tensor, strength: float | Tensor, masked: Tensor | None, moved: Tensor
) -> tuple[Tensor, Tensor]:
    """As :func:`_tv_gradients`."""
    # What is moved sums to 0, which a thousand ranks times it keep only if they do, too
    middle = ((probs.detach() > 0).sum(-1, keepdim=True) - 1).to(probs.dtype) / 2
    for_scores, for_strength = rank_gradients(probs, probs == 0.0, moved, middle)
    return unless_zero(strength, for_scores, moved), for_strength


def unless_zero(strength: float | Tensor, shared: Tensor, alone: Tensor) -> Tensor:
    """What keys share, but what each has alone where the strength is 0.

    A strength that begins to grow moves what is equal together; the scores move alone until then.
    """
    return torch.where(like_rows(strength, alone) == 0.0, alone, shared)


def _is_nan(parameter: float | Tensor, like: Tensor) -> Tensor:
    if isinstance(parameter, Tensor):
        return parameter.isnan()
    return torch.full_like(like, float(math.isnan(parameter)), dtype=torch.bool)


def _without_nan(parameter: float | Tensor, instead: float) -> float | Tensor:
    if isinstance(parameter, Tensor):
        return parameter.masked_fill(parameter.isnan(), instead)
    return instead if math.isnan(parameter) else parameter
