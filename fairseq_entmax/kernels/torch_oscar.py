"""The proximal operator of OSCAR in torch's own operations, and its gradients.

Scores are sorted, and neighbours are pooled until no score rises. On the simplex, where signs drop
out, only ranks matter (:func:`prox_ranks`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairseq_entmax.kernels.runs import Runs, equal_runs, shifted
from fairseq_entmax.kernels.structure import like_rows


def prox_ranks(ranked: Tensor, strength: float | Tensor, masked: Tensor) -> tuple[Tensor, Runs]:
    """Project ``x_i + strength * i`` onto non-increasing numbers, up to a constant per row.

    On the simplex this is all of OSCAR's penalty, as signs and the number of keys drop out.
    ``ranked`` is in descending order, masked keys last. Returns the same as
    :func:`~fairseq_entmax.kernels.torch_tv.prox_tv`.
    """
    fixed = ranked.masked_fill(masked, 0.0)
    level = like_rows(strength, ranked)
    places = torch.arange(ranked.size(-1), device=ranked.device, dtype=ranked.dtype)
    places = places.expand_as(ranked)
    starts = torch.ones_like(masked)
    for _ in range(ranked.size(-1)):
        runs = Runs.of(starts)
        # Kept apart: with a large strength, their sum would lose the digits of the scores
        mean, place = runs.mean(fixed), runs.mean(places)
        fall = shifted(mean, 1, 0.0) - mean
        rise = (place - shifted(place, 1, 0.0)) * level
        pooled = starts & ~masked & (fall < rise)
        pooled[..., :1] = False
        if not pooled.any():
            break
        starts = starts & ~pooled
    values = mean + level * (place - place[..., :1])
    return values.masked_fill(masked, -math.inf), Runs.of(starts)


def rank_gradients(probs: Tensor, alone: Tensor, moved: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of scores and strength through the pooling of :func:`prox_ranks`.

    ``moved``, the gradient of the pooled scores, sums to 0.
    """
    probs = probs.detach()
    order = probs.argsort(dim=-1, descending=True, stable=True)
    runs = equal_runs(probs.gather(-1, order), alone.gather(-1, order))
    ranked = moved.gather(-1, order)
    places = torch.arange(probs.size(-1), device=probs.device, dtype=probs.dtype)
    # Relative to the middle of the support: with ranks of a thousand, a sum would lose its digits
    middle = ((probs > 0).sum(-1, keepdim=True) - 1).to(probs.dtype) / 2
    ranks = runs.mean(places.expand_as(probs)) - middle
    for_strength = (ranks * ranked).sum(-1, keepdim=True)
    return torch.zeros_like(moved).scatter(-1, order, runs.mean(ranked)), for_strength
