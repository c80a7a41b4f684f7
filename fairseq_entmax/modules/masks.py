"""What a kernel may know of a mask without reading it."""

from __future__ import annotations

import torch
from torch import Tensor

_FUTURE = "_hides_the_future_alone"


def mark_future_mask(mask: Tensor) -> Tensor:
    """Say of a mask ``(length, length)`` that it is -inf above the diagonal and 0 elsewhere.

    A kernel that knows this does not read it, nor compute what it hides.
    """
    setattr(mask, _FUTURE, True)
    return mask


def hides_future_alone(mask: Tensor | None) -> bool:
    """Whether :func:`mark_future_mask` has said so."""
    return getattr(mask, _FUTURE, False)


def is_plain(mask: Tensor | None, query: Tensor, key: Tensor) -> bool:
    """Whether a mask is numbers, one for each query and key, that get no gradient; or none."""
    return mask is None or (
        mask.is_floating_point()
        and mask.shape == (query.size(0), key.size(0))
        and not (mask.requires_grad and torch.is_grad_enabled())
    )
