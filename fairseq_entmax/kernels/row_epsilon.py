"""Which epsilon a row of scores has."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class RowEpsilon(NamedTuple):
    """Epsilon of a row: ``values[row // inner % len(values)]``, which is how kernels read it."""

    values: Tensor
    inner: int

    @property
    def entries(self) -> int:
        """How many values there are."""
        return self.values.numel()

    @classmethod
    def of(cls, epsilon: float | Tensor, scores: Tensor, dtype: torch.dtype) -> RowEpsilon:
        """For rows of ``scores``, without a copy for each row where one alpha is of a head.

        Args:
            epsilon: number, or tensor that broadcasts to ``(*scores.shape[:-1], 1)``.
            scores: ``(..., keys)``.
            dtype: of the values.
        """
        if not isinstance(epsilon, Tensor):
            return cls(scores.new_full((1,), epsilon, dtype=dtype), 1)
        values = epsilon.to(scores.device, dtype)
        if values.numel() == 1:
            return cls(values.reshape(1), 1)
        rows = scores.shape[:-1]
        sizes = (1,) * (scores.dim() - values.dim()) + tuple(values.shape)
        own = [dim for dim, size in enumerate(sizes[:-1]) if size > 1]
        first, last = own[0], own[-1]
        if sizes[first : last + 1] == tuple(rows[first : last + 1]):
            return cls(values.reshape(-1).contiguous(), rows[last + 1 :].numel())
        # It varies along several dimensions apart from each other: a value for each row
        return cls(values.expand(*rows, 1).reshape(-1).contiguous(), 1)
