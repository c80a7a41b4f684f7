"""The size of a checkpoint's weights."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from fairseq_entmax.mappings.base import SHARE_ATTENTION, SHARE_MODEL
from fairseq_entmax.models.checkpoint_model import CheckpointModel

# Endings of the names of tensors: of those not learned, and of those that layers may share
_BUFFERS = (".decision", ".chosen", "factor_ratio", "rise.updates", ".version", "._float_tensor")
_SHARED = (".embed_tokens.weight", ".output_projection.weight")


def shared_names(model: CheckpointModel) -> tuple[str, ...]:
    """Endings of the names of tensors that layers of a model may share."""
    names = set(_SHARED)
    for attention in model.attentions:
        mapping = model.mapping(attention)
        if mapping is not None and mapping.share in (SHARE_ATTENTION, SHARE_MODEL):
            names |= {f".mapping.{name}" for name, _ in mapping.named_parameters()}
    return tuple(names)


def size_of(weights: dict[str, Tensor], shared: tuple[str, ...]) -> tuple[int, int]:
    """Number and bytes of the parameters, gates included; ``shared`` as :func:`shared_names`."""
    parameters = list(_parameters(weights, shared))
    count = sum(value.numel() for value in parameters)
    return count, sum(value.numel() * value.element_size() for value in parameters)


def _parameters(weights: dict[str, Tensor], shared: tuple[str, ...]) -> Iterator[Tensor]:
    """Yield each learned tensor once.

    Tensors that layers share may be copies in the file: fairseq moves each to the CPU by itself.
    """
    seen = set()
    copies: list[Tensor] = []
    for key, value in weights.items():
        is_buffer = key.startswith("pruning_state.") or key.endswith(_BUFFERS)
        place = (value.data_ptr(), value.shape)
        if is_buffer or not value.numel() or place in seen:
            continue
        seen.add(place)
        if key.endswith(shared):
            if any(torch.equal(value, known) for known in copies):
                continue
            copies.append(value)
        yield value
