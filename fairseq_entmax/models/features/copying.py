"""Copying words from the source."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fairseq_entmax.attentions import CROSS
from fairseq_entmax.mappings.layers import PerHeadSpec
from fairseq_entmax.mappings.registry import MappingSpec, parse_mapping
from fairseq_entmax.models import values
from fairseq_entmax.models.feature import Feature, ModelOptions, option, option_name

# Options of fairseq's that leave no copy head, or no vocabulary to mix with, and the reason
_REFUSED = {
    "no_cross_attention": "leaves no cross-attention to copy with",
    "cross_self_attention": "mixes words of the target into the attention to the source",
    "adaptive_input": "has no single table of embeddings to look up copied words in",
    "adaptive_softmax_cutoff": "has no single distribution over words to mix the copy distribution with",
    "decoder_layerdrop": "sometimes skips the layer of the copy heads",
    "merge_src_tgt_embed": "renumbers words after the data were made with the old numbers",
}
# More than any source has words, yet few enough for a vocabulary that fits in memory
MOST_MARKERS = 100_000


def parse_copy_heads(value: Any) -> tuple[int, ...]:
    """Parse head numbers from ``"0,3"``, one number, or a list, as in YAML."""
    heads = tuple(sorted(values.parse_head_counts(value)))
    if len(set(heads)) < len(heads):
        raise ValueError(f"a head is named twice in {value!r}")
    return heads


def parse_copy_mapping(value: Any) -> MappingSpec:
    text = values.mapping_text(value)
    if re.search(r"[,|()*]", text):
        raise ValueError(f"must be one mapping, such as sparsemax, not the list {text!r}")
    return parse_mapping(text)


@dataclass
class Copying(Feature):
    """How a model copies from its source: by the mean weights of heads of one cross-attention.

    Attributes:
        layer: the decoder layer of these heads, from 0, the bottom.
    """

    name = "copy"
    copy_layer: int = option(
        -1,
        "decoder layer whose cross-attention decides what is copied, counted from 0 (bottom) or from -1 (top)",
        values.whole_number(-999, 999),
        "N",
    )
    copy_heads: tuple[int, ...] = option(
        "0",
        "heads of that layer; the mean of their weights is the copy distribution",
        parse_copy_heads,
        "N,N,...",
    )
    copy_mapping: MappingSpec | None = option(
        None,
        "mapping of the copy heads alone, such as softmax if all other heads are sparsemax",
        parse_copy_mapping,
        "SPEC",
        "that of their layer",
    )
    source_position_markers: int = option(
        0,
        "number of words <unk-0>, <unk-1> and so on at the end of the dictionary, as 'fairseq-entmax "
        "oov' makes it, which stand for source words outside the vocabulary; 0 for subwords",
        values.whole_number(0, MOST_MARKERS),
        "N",
    )
    layer: int = field(init=False, default=-1)

    def fit(self, options: ModelOptions, args: Any) -> None:
        for name, reason in _REFUSED.items():
            if getattr(args, name, None):
                raise ValueError(
                    f"{option_name(name)} {reason}: leave it out, or use entmax_transformer"
                )
        layers, named = len(options.heads[CROSS]), self.copy_layer
        layer = self.layer = named + layers if named < 0 else named
        if not 0 <= layer < layers:
            raise ValueError(
                f"--copy-layer {named}: the decoder has {layers} layers, from 0 to {layers - 1}, or "
                f"from -1 to {-layers}"
            )
        number = options.heads[CROSS][layer]
        if self.copy_heads[-1] >= number:
            there = f"heads 0 to {number - 1}" if number else "no heads, as they were pruned"
            raise ValueError(
                f"--copy-heads {','.join(map(str, self.copy_heads))}: layer {layer} of the cross attention "
                f"has {there}: name heads that it has, or another layer with --copy-layer"
            )
        if self.copy_mapping is not None:
            spec = options.specs[CROSS][layer]
            each = list(spec.heads) if isinstance(spec, PerHeadSpec) else [spec] * number
            for head in self.copy_heads:
                each[head] = self.copy_mapping
            options.specs[CROSS][layer] = PerHeadSpec(tuple(each))
            options.features["attention"].check_per_head(CROSS, layer)

    def attach(self, model: Any, args: Any) -> None:
        model.decoder.copy = self

    def protected(self, attention: str, layer: int) -> tuple[int, ...]:
        return self.copy_heads if (attention, layer) == (CROSS, self.layer) else ()

    def arguments(self, heads: Sequence[int]) -> dict[str, str]:
        """Options for a model that copies in this way, by the heads with these numbers."""
        options = {"copy_layer": str(self.layer), "copy_heads": ",".join(map(str, heads))}
        mapping = {} if self.copy_mapping is None else {"copy_mapping": str(self.copy_mapping)}
        return {**options, **mapping}
