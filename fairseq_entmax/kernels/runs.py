"""Rows cut into runs of adjacent keys, in torch's own operations."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Runs(NamedTuple):
    """A row cut into runs of adjacent keys.

    Attributes:
        number: ``(..., keys)``, the number of the run that a key is in, from 0.
        starts: ``(..., keys)``, true where a run starts.
    """

    number: Tensor
    starts: Tensor

    @classmethod
    def of(cls, starts: Tensor) -> Runs:
        return cls(starts.cumsum(-1) - 1, starts)

    def total(self, values: Tensor) -> Tensor:
        """At each key, the sum of ``values`` over its run. Autograd can follow it."""
        sums = torch.zeros_like(values).scatter_add(-1, self.number, values)
        return sums.gather(-1, self.number)

    def mean(self, values: Tensor) -> Tensor:
        return self.total(values) / self.total(torch.ones_like(values))

    def ends(self) -> Tensor:
        return shifted(self.starts, -1, True)


def shifted(values: Tensor, by: int, fill: float | bool) -> Tensor:
    """Give each key the value of the key ``by`` places before it, or ``fill`` if there is none."""
    moved = torch.full_like(values, float(fill))  # tracing cannot fill with True
    if by > 0:
        moved[..., by:] = values[..., :-by]
    else:
        moved[..., :by] = values[..., -by:]
    return moved


def equal_runs(values: Tensor, alone: Tensor) -> Runs:
    """Runs of equal values; keys that are ``alone`` are runs of one."""
    values = values.detach()
    starts = (values != shifted(values, 1, 0.0)) | alone | shifted(alone, 1, True)
    starts[..., :1] = True
    return Runs.of(starts)


def first_of_each(probs: Tensor, runs: Runs) -> Tensor:
    """Give all keys of a run its first value: vectorised functions may differ by a bit."""
    places = torch.arange(probs.size(-1), device=probs.device).expand_as(probs)
    return probs.gather(-1, places.where(runs.starts, 0).cummax(-1).values)
