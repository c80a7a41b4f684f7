"""How likely a model holds what it should have said."""

from __future__ import annotations

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
