"""The options of models that classify texts, written once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fairseq_entmax.attentions import HYPOTHESIS, POOLING, PREMISE
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.mappings.layers import HeadsSpec, LayerSpec
from fairseq_entmax.models.config import (
    AttentionConfig,
    option,
    option_name,
    parse_mapping_option,
    whole_number,
)


def parse_pooling_mapping(value: Any) -> LayerSpec:
    """The mapping of a pooling, of all its heads or of each."""
    specs = parse_mapping_option(value)
    if len(specs) != 1:
        raise ValueError(f"must be the mapping of one layer, not the list {value!r}")
    return specs[0]


@dataclass
class ClassifierConfig(AttentionConfig):
    """The options of a model that classifies, beside those of any model of this package."""

    pooling_mapping: str | None = option(
        None,
        "mapping of the attention that pools the words of a text into one vector, such as fusedmax",
        parse_pooling_mapping,
        "SPEC",
        "that of the encoder's top layer",
    )
    pooling_heads: int = option(
        1, "heads of the attention that pools, which share the width", whole_number(1, 99_999), "N"
    )
    pair_attention: bool = option(
        False,
        "pool a pair of texts apart: the second, the hypothesis, first, which then is the query "
        "that the first, the premise, is attended to with",
    )
    pair_mapping: str | None = option(
        None,
        "mapping of the attention to the premise, of --pair-attention",
        parse_pooling_mapping,
        "SPEC",
        "--pooling-mapping",
    )


@dataclass(frozen=True)
class PoolingOptions:
    """How a model pools.

    Attributes:
        specs: the mapping of each attention that pools, by its name.
        heads: how many heads each has.
        mapping_defaults: what a mapping's text is taken to say where it does not.
    """

    specs: dict[str, LayerSpec]
    heads: int
    mapping_defaults: dict[str, str]

    @property
    def is_pair(self) -> bool:
        """Whether the texts of a pair are pooled apart."""
        return PREMISE in self.specs

    def build(self, name: str, generator: torch.Generator | None = None) -> Mapping:
        """Make the mapping of one attention that pools."""
        return self.specs[name].build(self.heads, generator, self.mapping_defaults)

    def arguments(self) -> dict[str, str]:
        """The options by which a model pools so, whatever the encoder's mapping."""
        if not self.is_pair:
            return {"pooling_mapping": str(self.specs[POOLING])}
        return {
            "pooling_mapping": str(self.specs[HYPOTHESIS]),
            "pair_mapping": str(self.specs[PREMISE]),
        }


def read_pooling(
    config: ClassifierConfig, args: Any, top: LayerSpec, mapping_defaults: dict[str, str]
) -> PoolingOptions:
    """What the options of pooling amount to; ``top`` is the mapping of the encoder's top layer."""
    heads, width = config.checked("pooling_heads"), int(args.encoder_embed_dim)
    if width % heads:
        raise ValueError(
            f"--pooling-heads {heads} does not divide the width --encoder-embed-dim {width}"
        )
    own = config.checked("pooling_mapping") or top
    specs = {POOLING: own}
    if config.checked("pair_attention"):
        specs = {HYPOTHESIS: own, PREMISE: config.checked("pair_mapping") or own}
    elif config.pair_mapping is not None:
        raise ValueError(
            f"--pair-mapping {config.pair_mapping} is of --pair-attention, which is not given: "
            f"give both or neither"
        )
    pooling = PoolingOptions(specs, heads, mapping_defaults)
    for name, spec in specs.items():
        of_pair = name == PREMISE and config.pair_mapping is not None
        option = "pair_mapping" if of_pair else "pooling_mapping"
        try:
            # A private generator: a check leaves torch's own random numbers as they are
            pooling.build(name, torch.Generator())
        except ValueError as error:
            is_top = isinstance(spec, HeadsSpec) and getattr(config, option) is None
            hint = " (the mapping of the encoder's top layer)" if is_top else ""
            raise ValueError(f"{option_name(option)}{hint}: {error}") from None
    return pooling
