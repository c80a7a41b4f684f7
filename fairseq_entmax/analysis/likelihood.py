"""How likely a model holds what it should have said."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def negative_log_likelihood(log_probs: Tensor, target: Tensor, padding_idx: int) -> Tensor:
    """The negative log likelihood of every target token, without smoothing.

    Args:
        log_probs: ``(batch, queries, vocabulary)``, logarithms of probabilities.
        target: ``(batch, queries)``.
        padding_idx: of the target dictionary.

    Returns:
        ``(batch, queries)`` in nats, 0 at padding.
    """
    rows, wanted = log_probs.flatten(0, 1), target.flatten()
    losses = functional.nll_loss(rows, wanted, ignore_index=padding_idx, reduction="none")
    return losses.view_as(target)


def unreachable(losses: Tensor, model: Any) -> Tensor:
    """Target tokens that a model gives no probability, though it is sound.

    Those are markers of words that its copy leaves out: the generator has no such word.

    Args:
        losses: ``(batch, queries)``, of :func:`negative_log_likelihood`.
        model: any model of this package.

    Returns:
        ``(batch, queries)`` bool; nowhere true for a model without markers.
    """
    copy = model.attention_options.copy
    has_markers = copy is not None and copy.markers > 0
    return losses == torch.inf if has_markers else torch.zeros_like(losses, dtype=torch.bool)
