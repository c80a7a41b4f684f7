"""The state that head pruning keeps between updates, stored in the model's checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_entmax.attentions import ATTENTIONS


class PruningState(nn.Module):
    """The state of the penalty on gates. The optimiser changes nothing in it.

    fairseq saves the model in every checkpoint, but a criterion only if it has learned parameters.
    So what the criterion needs again when training resumes is kept here.

    With one budget for all attentions together, the first number of ``start`` is theirs, and the
    others are -1.
    """

    multipliers: Tensor  # (3,) float64: the Lagrange multiplier of each attention's budget
    start: Tensor  # (3,) float64: expected open heads when the budget began; 0 without one
    num_updates: Tensor  # (1,) int64: updates that the state is for; -1 before training
    updates: int  # the same, but 0 before training; reading a buffer waits for a GPU
    is_known: bool  # whether the criterion has read the state, in this process
    is_decided: bool  # whether the heads are known to be decided, in this process

    def __init__(self) -> None:
        super().__init__()
        size = len(ATTENTIONS)
        self.register_buffer("multipliers", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("start", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("num_updates", torch.full((1,), -1, dtype=torch.int64))
        self.updates, self.is_known, self.is_decided = 0, False, False

    def set_updates(self, updates: int) -> None:
        """Note the number of updates that the state is for."""
        self.updates = updates
        self.is_known = True
        self.num_updates.fill_(updates)

    def forget(self) -> None:
        """Reset to the state of a new training."""
        self.load_state_dict({})

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Any:
        """Move to another device, but stay in float64 when the model goes to half precision."""
        before = dict(self.named_buffers())
        super()._apply(fn, *args, **kwargs)
        for name, buffer in before.items():
            setattr(self, name, buffer.to(getattr(self, name).device))
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Start anew if a checkpoint has no such state."""
        for name, buffer in PruningState().named_buffers():
            state_dict.setdefault(prefix + name, buffer)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        self.updates, self.is_known, self.is_decided = max(0, int(self.num_updates)), False, False
