"""The likelihood that a model gives to its targets."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fairseq_entmax.mappings import entmax_loss

_NOTHING = -1  # no target


def negative_log_likelihood(log_probs: Tensor, target: Tensor, counts: Tensor) -> Tensor:
    """Return every target's negative log likelihood in nats; 0 for targets that do not count."""
    rows, wanted = log_probs.flatten(0, -2), target.masked_fill(~counts, _NOTHING).flatten()
    losses = functional.nll_loss(rows, wanted, ignore_index=_NOTHING, reduction="none")
    return losses.view_as(target)


def has_zeros(model: Any) -> bool:
    """Whether a model's output can give words a probability of exactly zero."""
    return bool(getattr(model, "output_alpha", 1.0) > 1.0)


def unreachable(losses: Tensor, model: Any) -> Tensor:
    """Whether each target has probability zero though the model is sound: words outside the support
    of a sparse output, and markers of words that a copy leaves out."""
    copy = model.attention_options.copy
    may_be = has_zeros(model) or (copy is not None and copy.source_position_markers > 0)
    return losses == torch.inf if may_be else torch.zeros_like(losses, dtype=torch.bool)


def loss_of_logits(logits: Tensor, target: Tensor, counts: Tensor, alpha: float) -> Tensor:
    """Return a differentiable loss of every target; 0 for targets that do not count.

    Outside the support of a sparse output, the likelihood of a word is zero and has no gradient, so
    the loss is the Fenchel-Young loss that trains such models. Other models have the negative log
    likelihood."""
    if alpha == 1.0:
        # fairseq's likelihoods are float32 whatever the model's precision
        dtype = torch.promote_types(logits.dtype, torch.float32)
        log_probs = torch.log_softmax(logits, dim=-1, dtype=dtype)
        return negative_log_likelihood(log_probs, target, counts)
    return entmax_loss(logits, target.masked_fill(~counts, 0), alpha).masked_fill(~counts, 0.0)
