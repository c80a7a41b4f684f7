"""What a kernel may know of a mask without reading it."""

from __future__ import annotations

import torch
from torch import Tensor

from fairseq_entmax.kernels.tracing import is_recorded

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


def leave_each_query_a_key(key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> bool:
    """Whether every query is known to have a key that is not masked, as torch's attention needs it.

    Unknown are other masks than that of the future, and what is traced, compiled or exported, which
    is for other masks, too. Padding on a GPU, where a look would wait in every layer, is taken to
    leave one, as fairseq takes it: a sentence has an end, and only with --left-pad-target is that not so.
    """
    if attn_mask is not None and not (hides_future_alone(attn_mask) or _is_of_future(attn_mask)):
        return False
    if key_padding_mask is None or not key_padding_mask.dim():
        return True
    if is_recorded():
        return False
    if key_padding_mask.device.type != "cpu":
        return True
    is_padding = key_padding_mask.to(torch.bool)
    # The first query sees the first key alone
    is_empty = is_padding.all(1) if attn_mask is None else is_padding[:, 0]
    return not bool(is_empty.any())


def _is_of_future(mask: Tensor) -> bool:
    """What :func:`mark_future_mask` says, read from the mask.

    Activation checkpointing computes a layer again with the same numbers and without the mark, and
    it has to go the same way.
    """
    if not mask.is_floating_point() or mask.dim() != 2 or mask.size(0) != mask.size(1):
        return False
    return not is_recorded() and torch.equal(mask, torch.full_like(mask, -torch.inf).triu(1))
