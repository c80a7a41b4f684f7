"""What heads have to do with the parses of ``--conllu``.

Worked out by :class:`fairseq_entmax.analysis.annotations.linguistic.LinguisticStatistics`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairseq_entmax.analysis.measures.base import (
    Fields,
    JsonSchema,
    Measure,
    Number,
    object_schema,
)

_LOOKS = "how often the largest weight of a word is on the word that "
DIRECTIONS = {
    "to_head": ("Dependencies: to the head", f"{_LOOKS}it depends on by the relation {{}}"),
    "to_dependent": (
        "Dependencies: to the dependent",
        f"{_LOOKS}depends on it by the relation {{}}",
    ),
}


class Linguistic(Measure):
    """Dependencies in encoder-self, parts of speech and named entities there and in cross."""

    name = "linguistic"
    source = "Baan et al. 2019, sections 5.1 and 5.2"
    numbers = (
        Number(
            "pos-kl",
            "Part-of-speech divergence",
            "Kullback-Leibler divergence, in nats, of the parts of speech weighted by attention "
            "from those of the sentence",
            ("pos_kl",),
            largest=None,
        ),
        Number(
            "named-entity",
            "Named entities",
            "share of the weight that is on named entities",
            ("named_entity",),
        ),
    )

    def fields(self) -> dict[str, JsonSchema]:
        share = {"$ref": "#/$defs/share_or_null"}
        return {
            "dependencies": {
                "type": ["object", "null"],
                "description": "How often the largest weight of a word, the end of the sentence "
                "left out, is on the other word of each dependency relation (Voita et al. 2019, "
                "section 5.2); in encoder-self with annotations.",
                "additionalProperties": object_schema("", dict.fromkeys(DIRECTIONS, share)),
            },
            **super().fields(),
        }

    def shown(self, analysis: dict[str, Any]) -> Iterator[Number]:
        """Also such as ``to-head@nsubj`` and ``to-dependent@obj``."""
        yield from self.numbers
        relations = (analysis["annotations"] or {}).get("relations") or {}
        for direction, (group, meaning) in DIRECTIONS.items():
            for relation in relations:
                yield Number(
                    f"{direction.replace('_', '-')}@{relation}",
                    f"{relation} {direction.replace('_', ' ')}",
                    meaning.format(relation),
                    ("dependencies", relation, direction),
                    group=group,
                )

    def of_heads(self, layer: Any) -> list[Fields] | None:
        return layer.linguistic
