"""Sparse by degrees: a mapping that is softmax when training begins, and itself some updates later.

A key outside the support gets no gradient, so a head that closes too soon learns nothing more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

# Its name in a mapping's text, and that of the module in a mapping
WARMUP, RISE = "warmup", "rise"
# What an option may count updates up to: more than any training has
MOST_UPDATES = 10**9


def check_warmup(value: Any, name: str = WARMUP) -> int:
    """``value`` as a whole number of updates from 0 to 1,000,000,000, or ValueError."""
    text = str(value).strip()
    is_whole = text.isascii() and text.isdigit() and len(text) <= len(str(MOST_UPDATES))
    if isinstance(value, bool) or not is_whole or int(text) > MOST_UPDATES:
        raise ValueError(
            f"{name} must be a whole number of updates from 0 to {MOST_UPDATES:,}, not {value!r:.100}"
        )
    return int(text)


class Rise(nn.Module):
    """The share of sparsity that there is: ``min(1, updates / length)``.

    The updates are a buffer, so that a checkpoint from the middle of a training has the share of
    its update. fairseq sets them before each update.

    Args:
        length: updates until the share is 1, at least 1.

    Attributes:
        updates: ``(1,)`` int64, ``length`` at the most.
        share: a number from 0 to 1.
    """

    updates: Tensor

    def __init__(self, length: int) -> None:
        super().__init__()
        self.length = length
        self.share = 0.0
        self.register_buffer("updates", torch.zeros(1, dtype=torch.int64))

    def set_num_updates(self, num_updates: int) -> None:
        """Take the share of the training's next update; ``num_updates`` counts those before it."""
        share = min(1.0, num_updates / self.length)
        if share != self.share:
            self.share = share
            self.updates.fill_(min(num_updates, self.length))

    def extra_repr(self) -> str:
        return str(self.length)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """As at the start where a checkpoint has no updates."""
        updates = state_dict.setdefault(f"{prefix}updates", torch.zeros_like(self.updates))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self.share = min(1.0, int(updates) / self.length)


def rises_of(model: nn.Module) -> list[Rise]:
    """All that rises in a model."""
    return [module for module in model.modules() if isinstance(module, Rise)]
