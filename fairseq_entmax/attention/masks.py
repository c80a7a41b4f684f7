"""What a kernel can know about a mask without reading it."""

from __future__ import annotations

import torch
from torch import Tensor

from fairseq_entmax.kernels.tracing import is_recorded

_FUTURE = "_hides_the_future_alone"


def mark_future_mask(mask: Tensor) -> Tensor:
    """Mark a mask ``(length, length)`` that is -inf above the diagonal and 0 elsewhere.

    A kernel neither reads a marked mask nor computes what it hides.
    """
    setattr(mask, _FUTURE, True)
    return mask


def is_marked_future_mask(mask: Tensor | None) -> bool:
    return getattr(mask, _FUTURE, False)


def to_add(mask: Tensor, query: Tensor) -> Tensor:
    """A mask to add to the scores; one without floats hides keys where it is true, as in torch."""
    if mask.is_floating_point():
        return mask
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask != 0, -torch.inf)


def is_plain(mask: Tensor | None, query: Tensor, key: Tensor) -> bool:
    """Whether a mask is None, or a number for each query and key without a gradient."""
    return mask is None or (
        mask.is_floating_point()
        and mask.shape == (query.size(0), key.size(0))
        and not (mask.requires_grad and torch.is_grad_enabled())
    )


def every_query_has_a_key(key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> bool:
    """Whether every query is known to have an unmasked key, as torch's attention needs it.

    This is unknown for masks other than the future mask, and for padding while tracing, compiling
    or exporting, where the answer must hold for other padding too. Padding on a GPU, where reading
    it would wait in every layer, is taken to leave a key, as in fairseq: a sentence has an end, and
    only --left-pad-target breaks this.
    """
    if attn_mask is not None and not (is_marked_future_mask(attn_mask) or _is_of_future(attn_mask)):
        return False
    if key_padding_mask is None or not key_padding_mask.dim():
        return True
    if is_recorded():
        return False
    if key_padding_mask.device.type != "cpu":
        return True
    is_padding = key_padding_mask.to(torch.bool)
    # With a future mask, the first query sees only the first key
    is_empty = is_padding.all(1) if attn_mask is None else is_padding[:, 0]
    return not bool(is_empty.any())


def _is_of_future(mask: Tensor) -> bool:
    """Whether the values of a mask are those that :func:`mark_future_mask` marks.

    Activation checkpointing recomputes a layer with the same values but without the mark, and must
    take the same path.
    """
    if not mask.is_floating_point() or mask.dim() != 2 or mask.size(0) != mask.size(1):
        return False
    return not is_recorded() and torch.equal(mask, torch.full_like(mask, -torch.inf).triu(1))
