"""The text form of the mappings of a model's layers, and of the heads of one layer.

A list, bottom layer first, gives each layer its own mapping: ``sparsemax*5,softmax``. Bars
give each head of a layer its own, head 0 first: ``sparsemax|softmax*7``. In brackets, such a layer
can be repeated: ``(sparsemax|softmax*7)*3,softmax*3``.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass
from typing import Any

import torch

from fairseq_entmax.mappings.base import SHARE_ATTENTION, SHARE_LAYER, SHARE_MODEL, Mapping
from fairseq_entmax.mappings.per_head import PerHeadMapping
from fairseq_entmax.mappings.registry import MappingSpec, parse_mapping

# The most heads or layers in a text: more than any model has, few enough to be written out
MOST_REPEATS = 999
_BRACKETS = re.compile(r"\(([^()]*)\)\s*(?:\*(.*))?", re.DOTALL)


@dataclass(frozen=True)
class PerHeadSpec:
    """The per-head mappings of one layer, as a text names them.

    Attributes:
        heads: the mapping of each head, head 0 first.
    """

    heads: tuple[MappingSpec, ...]

    def __str__(self) -> str:
        text = _with_repeats(map(str, self.heads), "|")
        return text if "|" in text else f"({text})"

    def build(
        self,
        num_heads: int = 1,
        generator: torch.Generator | None = None,
        defaults: Dictionary[str, Any] | None = None,
    ) -> Mapping:
        """Like :meth:`MappingSpec.build`; heads with the same text get one mapping together.

        Also raises ValueError if there are not ``num_heads`` heads, or if one of them would share
        what it learns beyond the layer.
        """
        if num_heads != len(self.heads):
            raise ValueError(
                f"{str(self)!r} lists {len(self.heads)} heads, but the layer has {num_heads}; give "
                f"one mapping for all heads, or one for each"
            )
        specs = {str(spec): spec for spec in self.heads}
        if len(specs) == 1:
            return self.heads[0].build(num_heads, generator, defaults)
        texts = [str(spec) for spec in self.heads]
        parts = [spec.build(texts.count(text), generator, defaults) for text, spec in specs.items()]
        for text, part in zip(specs, parts, strict=True):
            if any(True for _ in part.parameters()):
                _check_share(part.share, text)
        return PerHeadMapping(parts, [list(specs).index(text) for text in texts])

    def keep_heads(self, indices: Sequence[int]) -> LayerSpec:
        """The layer with only these heads; a single mapping if they all have the same."""
        remaining = tuple(self.heads[head] for head in indices)
        return (
            PerHeadSpec(remaining)
            if len(set(map(str, remaining))) > 1
            else (remaining or self.heads)[0]
        )


# The mapping or mappings of one layer
LayerSpec = MappingSpec | PerHeadSpec


@dataclass(frozen=True)
class LayersSpec:
    """The mappings of an attention's layers, as a text names them.

    Attributes:
        text: the text that was read.
        layers: the mapping of each layer named, bottom layer first.
        is_list: whether the text lists all layers; otherwise its one mapping serves every layer.
    """

    text: str
    layers: list[LayerSpec]
    is_list: bool

    def of_layers(self, number: int) -> list[LayerSpec]:
        """The mappings of ``number`` layers; raises ValueError for a list of another length."""
        if not self.is_list:
            return self.layers * number
        if len(self.layers) != number:
            raise ValueError(
                f"{self.text[:200]!r} lists {len(self.layers)} layers, but the model has {number}; "
                f"give one mapping for all layers, or one for each"
            )
        return list(self.layers)


def parse_layers(text: str) -> LayersSpec:
    """Read a mapping for every layer, or a list of layers; ``NAME*3`` stands for three of ``NAME``.

    Raises:
        ValueError: as :func:`parse_mapping`; a repeat count that is not 1 or more; per-head
            mappings that share beyond the layer.
    """
    items = _items(text)
    layers = [spec for spec, count in items for _ in range(count or 1)]
    return LayersSpec(text, layers, len(items) > 1 or items[0][1] is not None)


def parse_mappings(text: str) -> list[LayerSpec]:
    """The layers that :func:`parse_layers` reads."""
    return parse_layers(text).layers


def layers_text(specs: Iterable[LayerSpec]) -> str:
    """The text that :func:`parse_mappings` reads as these layers."""
    texts = [str(spec) for spec in specs]
    return _with_repeats((f"({text})" if "|" in text else text for text in texts), ",")


def _items(text: str) -> list[tuple[LayerSpec, int | None]]:
    """Read the items between commas, each with its number of layers, or None if none is given."""
    items: list[tuple[LayerSpec, int | None]] = []
    for item in text.split(","):
        if item.strip().startswith("("):
            match = _BRACKETS.fullmatch(item.strip())
            if match is None:
                raise ValueError(
                    f"write the heads of one layer in one pair of brackets, such as "
                    f"(sparsemax|softmax*7)*3, not {item.strip()!r} in {text!r}"
                )
            spec, count = _parse_heads(match[1], text), match[2]
        elif "|" in item:
            spec, count = _parse_heads(item, text), None
        else:
            mapping, star, repeat = item.partition("*")
            spec, count = parse_mapping(mapping), repeat if star else None
        items.append((spec, None if count is None else _count(count, "layers", text)))
    return items


def _parse_heads(heads: str, text: str) -> LayerSpec:
    specs: list[MappingSpec] = []
    if "|" not in heads and "*" not in heads:
        return parse_mapping(heads)
    for item in heads.split("|"):
        mapping, star, count = item.partition("*")
        spec = parse_mapping(mapping)
        specs += [spec] * (_count(count, "heads", text) if star else 1)
        if len(specs) > MOST_REPEATS:
            raise ValueError(f"{text[:200]!r} lists more than {MOST_REPEATS} heads of one layer")
    named = {str(spec): spec for spec in specs}
    for name, spec in named.items():
        if len(named) > 1:
            _check_share(spec.parameters.get("share", SHARE_LAYER), name)
    return PerHeadSpec(tuple(specs))


def _count(count: str, what: str, text: str) -> int:
    if not re.fullmatch(r"\s*0*[1-9][0-9]{0,2}\s*", count):
        raise ValueError(
            f"the count after '*' must be a whole number of {what}, 1 to {MOST_REPEATS}, not "
            f"{count!r:.100} in {text[:200]!r}"
        )
    return int(count)


def _check_share(share: str, text: str) -> None:
    if share in (SHARE_ATTENTION, SHARE_MODEL):
        raise ValueError(
            f"per-head mapping {text!r} shares what it learns with the whole {share}: per-head "
            f"mappings can share only within their layer; allowed are {text.split(':')[0]}:"
            f"share=none and share=layer, or --share-alpha none and layer"
        )


def _with_repeats(texts: Iterable[str], between: str) -> str:
    """Join ``a``, ``b``, ``b`` as ``a,b*2``."""
    runs = ((text, len(list(run))) for text, run in itertools.groupby(texts))
    return between.join(text if count == 1 else f"{text}*{count}" for text, count in runs)
