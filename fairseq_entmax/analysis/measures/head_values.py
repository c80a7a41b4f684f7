"""What attention itself knows of its heads: the numbers of its mapping, and its gates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from fairseq_entmax.analysis.measures.base import Fields, JsonSchema, Measure, Number, number_schema


def _value(name: str, title: str, meaning: str, **other: Any) -> Number:
    shown = {"is_main": True, "in_summary": True, **other}
    return Number(name, title, meaning, ("values", name), **shown)


_ANY: dict[str, Any] = {"largest": None, "least": None}
_KNOWN = (
    _value("alpha", "α", "the mapping's exponent: 1 is softmax, 2 is sparsemax", range=(1.0, 2.0)),
    _value(
        "tv",
        "λ of TV",
        "strength of total variation: the higher, the longer the runs of words with equal weight",
        largest=None,
    ),
    _value(
        "oscar",
        "λ of OSCAR",
        "strength of clustering: the higher, the more words with equal weight, wherever they are",
        largest=None,
    ),
    _value("p", "p", "exponent of the norm of sq-pnorm-max: 2 is sparsemax", **_ANY),
    Number(
        "gamma",
        "γ",
        "strength of the norm of sq-pnorm-max: the higher, the more words have a weight",
        ("values", "gamma"),
        **_ANY,
    ),
)
# Values whose meaning is known; any other value is described by its name alone
KNOWN = {number.name: number for number in _KNOWN}
# Values with which no weight is zero, whatever the scores
_DENSE = {"alpha": 1.0}


def head_value(name: str) -> Number:
    """Return the number to show for a value of a mapping, whatever its name."""
    return KNOWN.get(name) or _value(name, name, f"{name} of the head's mapping")


def may_leave_out(head: Fields) -> bool:
    """Whether a head's mapping can give weights of zero, judged by its values alone."""
    return all(head["values"].get(name) != value for name, value in _DENSE.items())


class HeadValues(Measure):
    """The numbers of a head's mapping, by name: learned ones and fixed ones.

    A number is null if other heads of the layer have it and this head's mapping does not."""

    name = "values"

    def fields(self) -> dict[str, JsonSchema]:
        known = {}
        for name, number in KNOWN.items():
            low, high = number.range or (number.least, number.largest)
            known[name] = number_schema(f"{number.meaning}.", high, low)
        shape = {"type": "object", "description": self.about(), "properties": known}
        names = {"propertyNames": {"$ref": "#/$defs/value_name"}}
        other = {"type": ["number", "null"]}
        return {"values": {**shape, **names, "additionalProperties": other}}

    def layer_fields(self) -> dict[str, JsonSchema]:
        names = {"type": "array", "items": {"$ref": "#/$defs/value_name"}}
        return {"learned": {**names, "description": "The values that training changes."}}

    def shown(self, analysis: dict[str, Any]) -> Iterator[Number]:
        layers = (layer for model in analysis["models"] for layer in model["attentions"])
        names = (name for layer in layers for head in layer["heads"] for name in head["values"])
        yield from map(head_value, dict.fromkeys(names))

    def of_heads(self, layer: Any) -> list[Fields]:
        mapping, heads = layer.module.mapping, layer.module.num_heads
        values = {
            name: [
                None if math.isnan(number) else number
                for number in value.detach().double().expand(heads).tolist()
            ]
            for name, value in mapping.head_values().items()
        }
        return [
            {"values": {name: numbers[head] for name, numbers in values.items()}}
            for head in range(heads)
        ]

    def of_layer(self, layer: Any, heads: Sequence[Fields]) -> Fields:
        return {"learned": list(layer.module.mapping.learned) if heads else []}


class Gate(Measure):
    """The factor of the head's output in evaluation; null for a head without a gate."""

    name, title = "gate", "Gate"
    meaning = "factor that multiplies the head's output"
    is_main = True

    def of_heads(self, layer: Any) -> list[Fields] | None:
        if layer.module.gate is None:
            return None
        return [{"gate": gate} for gate in layer.module.gate.at_evaluation().tolist()]
