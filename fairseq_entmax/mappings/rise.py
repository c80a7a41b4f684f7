"""Sparse by degrees: a mapping is softmax when training begins, and itself some updates later.

A key outside the support gets no gradient, so a head that is sparse too soon learns nothing more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_entmax.mappings.functional import number_in

# The name of a warmup in a mapping's text, and that of its module in the mapping
WARMUP, RISE = "warmup", "rise"
# The most updates that an option may give: more than any training has
MOST_UPDATES = 10**9


def check_warmup(value: Any, name: str = WARMUP) -> int:
    """Return ``value`` as a whole number from 0 to 1,000,000,000, or raise ValueError."""
    allowed = f"a whole number of updates from 0 to {MOST_UPDATES:,}"
    return int(number_in(value, name, lambda x: x.is_integer() and 0 <= x <= MOST_UPDATES, allowed))


class Rise(nn.Module):
    """The share of its sparsity that a mapping has: ``min(1, updates / length)``.

    The updates are a buffer, so that a checkpoint from the middle of training has the share of
    its update. fairseq sets them before each update.

    Args:
        length: updates until the share is 1, at least 1.

    Attributes:
        updates: ``(1,)`` int64, at most ``length``.
        share: a number from 0 to 1.
    """

    updates: Tensor

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.share = 0.0
        self.register_buffer("updates", torch.zeros(1, dtype=torch.int64))

    def set_num_updates(self, num_updates: int) -> None:
        """Set the share of the next update; ``num_updates`` counts the updates before it."""
        share = min(1.0, num_updates / self.length)
        if share != self.share:
            self.share = share
            self.updates.fill_(min(num_updates, self.length))

    def extra_repr(self) -> str:
        return str(self.length)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Start anew if a checkpoint has no updates."""
        updates = state_dict.setdefault(f"{prefix}updates", torch.zeros_like(self.updates))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self.share = min(1.0, int(updates) / self.length)


def rises_of(model: nn.Module) -> list[Rise]:
    """Every :class:`Rise` in a model."""
    return [module for module in model.modules() if isinstance(module, Rise)]
