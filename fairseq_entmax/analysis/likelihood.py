"""How likely a model holds what it should have said."""

from __future__ import annotations

from torch import Tensor


def negative_log_likelihood(log_probs: Tensor, target: Tensor, padding_idx: int) -> Tensor:
    """The negative log likelihood of every target token, without smoothing.

    Args:
        log_probs: ``(batch, queries, vocabulary)``, logarithms of probabilities.
        target: ``(batch, queries)``.
        padding_idx: of the target dictionary.

    Returns:
        ``(batch, queries)`` in nats, 0 at padding.
    """
    picked = log_probs.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return (-picked).masked_fill(target == padding_idx, 0.0)
