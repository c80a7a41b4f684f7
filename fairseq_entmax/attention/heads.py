"""The heads of a fairseq Transformer: find its attention modules, and replace them.

fairseq builds the Transformer as usual, whatever its shape. Each attention is then replaced by one
with the mapping, the number of heads and the gates that were asked for.
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
    """Iterate over this package's attention in a model: encoder first, bottom layer first.

    Yields:
        (one of the three names, layer from 0, module).
    """
    for attention, number, layer, name in every_attention(model):
        module = getattr(layer, name)
        if isinstance(module, MultiheadAttention):
            yield attention, number, module


def every_attention(model: nn.Module) -> Iterator[tuple[str, int, Any, str]]:
    """Iterate over all attention of any fairseq model: kind, layer number, layer, name in it.

    The layers of each encoder or decoder are numbered in order.
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
    """Replace one attention of a fairseq layer; the heads that remain keep their weights."""
    stock = getattr(layer, name)
    noise = getattr(layer, "quant_noise", 0.0), getattr(layer, "quant_noise_block_size", 8)
    setattr(layer, name, MultiheadAttention.replacing(stock, heads, *noise))
    if heads.number == 0 and getattr(layer, "normalize_before", False):
        setattr(layer, f"{name}_layer_norm", nn.Identity())  # nothing would use its output
