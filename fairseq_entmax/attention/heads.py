"""The heads of a fairseq Transformer: where they are, and how a layer gets others.

A Transformer of fairseq, whatever its shape, is built as fairseq builds it; then each attention
is replaced by one with a mapping, the numbers of heads and the gates that were asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention
from torch import nn

from fairseq_entmax.attention.base import Heads
from fairseq_entmax.attention.multihead import MultiheadAttention
from fairseq_entmax.attentions import PLACES, place_of


def attention_modules(model: nn.Module) -> Iterator[tuple[str, int, MultiheadAttention]]:
    """Every attention of a model with heads of this package, encoder first, bottom layer first.

    Yields:
        (one of the three names, layer from 0, module).
    """
    for attention, number, layer in transformer_layers(model):
        module = getattr(layer, PLACES[attention][1])
        if isinstance(module, MultiheadAttention):
            yield attention, number, module


def transformer_layers(model: nn.Module, path: str = "") -> Iterator[tuple[str, int, Any]]:
    """Every attention of any fairseq Transformer, with the layer that it is in."""
    for name, module in model.named_children():
        if isinstance(module, FairseqMultiheadAttention):
            located = place_of(path + name)
            if located is not None:
                yield *located[0], model
        else:
            yield from transformer_layers(module, f"{path}{name}.")


def give_heads(layer: Any, attention: str, heads: Heads) -> None:
    """Replace an attention of one of fairseq's layers; its weights stay those of the heads kept."""
    name = PLACES[attention][1]
    stock = getattr(layer, name)
    noise = getattr(layer, "quant_noise", 0.0), getattr(layer, "quant_noise_block_size", 8)
    setattr(layer, name, MultiheadAttention.replacing(stock, heads, *noise))
    if heads.number == 0 and getattr(layer, "normalize_before", False):
        setattr(layer, f"{name}_layer_norm", nn.Identity())  # nothing would look at its output
