"""The options of models that classify texts, written once."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any

import torch

from fairseq_entmax.attentions import ENCODER_SELF, HYPOTHESIS, POOLING, PREMISE
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.mappings.layers import HeadsSpec, LayerSpec
from fairseq_entmax.models.config import (
    AttentionConfig,
    option,
    option_name,
    parse_mapping_option,
)
from fairseq_entmax.models.options import AttentionOptions
from fairseq_entmax.models.saved import load_part


def parse_pooling_mapping(value: Any) -> LayerSpec:
    """The mapping of a pooling, of all its heads or of each.

    Raises:
        ValueError: as :func:`parse_mapping_option`; it is a list of layers.
    """
    specs = parse_mapping_option(value)
    if len(specs) != 1:
        raise ValueError(f"must be the mapping of one layer, not the list {value!r}")
    return specs[0]


def parse_pooling_heads(value: Any) -> int:
    """How many heads pool.

    Raises:
        ValueError: it is no whole number of 1 or more.
    """
    if isinstance(value, bool) or not re.fullmatch(r"\s*0*[1-9][0-9]{0,4}\s*", str(value)):
        raise ValueError(f"must be a whole number of 1 or more, such as 1 or 4, not {value!r}")
    return int(value)


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
        1,
        "heads of the attention that pools, which share the width",
        parse_pooling_heads,
        "N",
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
        """Make the mapping of one attention that pools.

        Raises:
            ValueError: it names other heads than there are.
        """
        return self.specs[name].build(self.heads, generator, self.mapping_defaults)

    def of_checkpoint(self, weights: dict[str, Any], path: str) -> dict[str, Mapping]:
        """The mappings with what a checkpoint's weights say that they learned, in float64.

        Args:
            weights: of the checkpoint, by name.
            path: the file, for a message.

        Raises:
            ValueError: they are those of other mappings.
        """
        mappings = {}
        for name in self.specs:
            start = f"poolings.{name}.mapping."
            own = {k.removeprefix(start): v for k, v in weights.items() if k.startswith(start)}
            mapping = self.build(name, torch.Generator())
            load_part(mapping, own, start, path)
            mappings[name] = mapping.double()
        return mappings

    def arguments(self) -> dict[str, str]:
        """The options by which a model pools so, whatever the encoder's mapping."""
        if not self.is_pair:
            return {"pooling_mapping": str(self.specs[POOLING])}
        return {
            "pooling_mapping": str(self.specs[HYPOTHESIS]),
            "pair_mapping": str(self.specs[PREMISE]),
        }


@dataclass(frozen=True)
class ClassifierOptions(AttentionOptions):
    """The checked options of a model that classifies.

    Attributes:
        pooling: how it pools.
    """

    # With a default, as fields before it have one
    pooling: PoolingOptions = PoolingOptions({}, 0, {})


def read_classifier(options: AttentionOptions, args: Any) -> ClassifierOptions:
    """What the options of pooling amount to, beside those of attention.

    Args:
        options: of attention.
        args: all options of the model.

    Raises:
        ValueError: names the option, what was given, and what is allowed.
    """
    config = ClassifierConfig.of(args)
    assert isinstance(config, ClassifierConfig)
    if config.checked("freeze_decoder"):
        raise ValueError("--freeze-decoder: this model has no decoder; leave it out")
    heads, width = config.checked("pooling_heads"), int(args.encoder_embed_dim)
    if width % heads:
        raise ValueError(
            f"--pooling-heads {heads} does not divide the width --encoder-embed-dim {width}"
        )
    is_pair = config.checked("pair_attention")
    if config.pair_mapping is not None and not is_pair:
        raise ValueError(
            f"--pair-mapping {config.pair_mapping} is of --pair-attention, which is not given: "
            f"give both or neither"
        )
    own = config.checked("pooling_mapping") or options.specs[ENCODER_SELF][-1]
    specs = {POOLING: own}
    if is_pair:
        specs = {HYPOTHESIS: own, PREMISE: config.checked("pair_mapping") or own}
    # What is learned is shared inside a pooling at the most, as --share-alpha layer does
    pooling = PoolingOptions(specs, heads, options.mapping_defaults)
    for name, spec in specs.items():
        is_own = name == PREMISE and config.pair_mapping is not None
        option_of = "pair_mapping" if is_own else "pooling_mapping"
        try:
            # Not with torch's own random numbers, which a check is not to use up
            pooling.build(name, torch.Generator())
        except ValueError as error:
            default = isinstance(spec, HeadsSpec) and getattr(config, option_of) is None
            hint = " (the mapping of the encoder's top layer)" if default else ""
            raise ValueError(f"{option_name(option_of)}{hint}: {error}") from None
    own_fields = {entry.name: getattr(options, entry.name) for entry in fields(AttentionOptions)}
    return ClassifierOptions(**own_fields, pooling=pooling)
