"""The heads of a fairseq Transformer: where they are, and how a layer gets others.

A Transformer of fairseq, whatever its shape, is built as fairseq builds it; then each attention
is replaced by one with a mapping, the numbers of heads and the gates that were asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from fairseq.models import FairseqDecoder, FairseqEncoder
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention
from torch import nn

from fairseq_entmax.attention.base import Heads
from fairseq_entmax.attention.multihead import MultiheadAttention
from fairseq_entmax.attentions import CROSS, DECODER_SELF, ENCODER_SELF


def attention_modules(model: nn.Module) -> Iterator[tuple[str, int, MultiheadAttention]]:
    """Every attention of a model with heads of this package, encoder first, bottom layer first.

    Yields:
        (one of the three names, layer from 0, module).
    """
    for attention, number, layer, name in every_attention(model):
        module = getattr(layer, name)
        if isinstance(module, MultiheadAttention):
            yield attention, number, module


def every_attention(model: nn.Module) -> Iterator[tuple[str, int, Any, str]]:
    """Every attention of any model of fairseq's, its layer and its name there.

    Layers of an encoder or a decoder are numbered in their order.
    """
    numbers: Counter[tuple[str, int]] = Counter()
    for stack, attention, layer, name in _found(model, model):
        yield attention, numbers[attention, id(stack)], layer, name
        numbers[attention, id(stack)] += 1


def _found(module: nn.Module, stack: nn.Module) -> Iterator[tuple[nn.Module, str, Any, str]]:
    stack = module if isinstance(module, FairseqEncoder | FairseqDecoder) else stack
    self_attention = DECODER_SELF if isinstance(stack, FairseqDecoder) else ENCODER_SELF
    for name, child in module.named_children():
        if not isinstance(child, FairseqMultiheadAttention):
            yield from _found(child, stack)
        else:
            yield stack, CROSS if child.encoder_decoder_attention else self_attention, module, name


def give_heads(layer: Any, name: str, heads: Heads) -> None:
    """Replace an attention of one of fairseq's layers; its weights stay those of the heads kept."""
    stock = getattr(layer, name)
    noise = getattr(layer, "quant_noise", 0.0), getattr(layer, "quant_noise_block_size", 8)
    setattr(layer, name, MultiheadAttention.replacing(stock, heads, *noise))
    if heads.number == 0 and getattr(layer, "normalize_before", False):
        setattr(layer, f"{name}_layer_norm", nn.Identity())  # nothing would look at its output
