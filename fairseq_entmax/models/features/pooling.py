"""Pooling the words of texts that are classified."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from fairseq_entmax.attention.pooling import AttentionPooling
from fairseq_entmax.attentions import ENCODER_SELF, HYPOTHESIS, POOLING, PREMISE
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.mappings.layers import HeadsSpec, LayerSpec
from fairseq_entmax.models import values
from fairseq_entmax.models.feature import Feature, ModelOptions, option, option_name


def parse_pooling_mapping(value: Any) -> LayerSpec:
    """The mapping of a pooling, of all its heads or of each."""
    specs = values.parse_mapping_option(value)
    if len(specs) != 1:
        raise ValueError(f"must be the mapping of one layer, not the list {value!r}")
    return specs[0]


@dataclass
class Pooling(Feature):
    """How a model pools: the attentions that make one vector of a text, or of each text of a pair.

    Attributes:
        specs: the mapping of each attention that pools, by its name.
        mapping_defaults: what a mapping's text is taken to say where it does not.
    """

    name = "pooling"
    pooling_mapping: LayerSpec | None = option(
        None,
        "mapping of the attention that pools the words of a text into one vector, such as fusedmax",
        parse_pooling_mapping,
        "SPEC",
        "that of the encoder's top layer",
    )
    pooling_heads: int = option(
        1,
        "heads of the attention that pools, which share the width",
        values.whole_number(1, 99_999),
        "N",
    )
    pair_attention: bool = option(
        False,
        "pool a pair of texts apart: the second, the hypothesis, first, which then is the query "
        "that the first, the premise, is attended to with",
    )
    pair_mapping: LayerSpec | None = option(
        None,
        "mapping of the attention to the premise, of --pair-attention",
        parse_pooling_mapping,
        "SPEC",
        "--pooling-mapping",
    )
    specs: dict[str, LayerSpec] = field(init=False, default_factory=dict)
    mapping_defaults: dict[str, Any] = field(init=False, default_factory=dict)

    def fit(self, options: ModelOptions, args: Any) -> None:
        heads, width = self.pooling_heads, int(args.encoder_embed_dim)
        if width % heads:
            raise ValueError(
                f"--pooling-heads {heads} does not divide the width --encoder-embed-dim {width}"
            )
        first = self.pooling_mapping or options.specs[ENCODER_SELF][-1]
        self.specs, self.mapping_defaults = {POOLING: first}, options.mapping_defaults
        if self.pair_attention:
            self.specs = {HYPOTHESIS: first, PREMISE: self.pair_mapping or first}
        elif self.pair_mapping is not None:
            raise ValueError(
                f"--pair-mapping {self.pair_mapping} is of --pair-attention, which is not given: "
                f"give both or neither"
            )
        for name, spec in self.specs.items():
            of_pair = name == PREMISE and self.pair_mapping is not None
            option = "pair_mapping" if of_pair else "pooling_mapping"
            try:
                # A private generator: a check leaves torch's own random numbers as they are
                self.build(name, torch.Generator())
            except ValueError as error:
                is_top = isinstance(spec, HeadsSpec) and getattr(self, option) is None
                hint = " (the mapping of the encoder's top layer)" if is_top else ""
                raise ValueError(f"{option_name(option)}{hint}: {error}") from None

    @property
    def is_pair(self) -> bool:
        """Whether the texts of a pair are pooled apart."""
        return PREMISE in self.specs

    def build(self, name: str, generator: torch.Generator | None = None) -> Mapping:
        """Make the mapping of one attention that pools."""
        return self.specs[name].build(self.pooling_heads, generator, self.mapping_defaults)

    def attach(self, model: Any, args: Any) -> None:
        # Another generator than that of the heads, which are to be the same however words are pooled
        generator = torch.Generator().manual_seed(model.head_seed() + 1)
        width, heads = model.cfg.encoder.embed_dim, self.pooling_heads
        for name in self.specs:
            mapping = self.build(name, generator)
            model.poolings[name] = AttentionPooling(width, heads, mapping, name == PREMISE)
        if self.is_pair:
            model.combine = nn.Linear(2 * width, width)

    def saved(self) -> dict[str, Any]:
        """The options by which a model pools so, whatever becomes of the encoder's mappings."""
        pair = {"pooling_mapping": HYPOTHESIS, "pair_mapping": PREMISE}
        names = pair if self.is_pair else {"pooling_mapping": POOLING}
        return {option: str(self.specs[name]) for option, name in names.items()}
