"""The JSON Schema of ``analysis.json``: its frame, and in it what each measure says of itself.

The frame is in ``analysis.schema.json``, which ships with the measures filled in. After a measure
of the package changed, this writes it anew::

    python -m fairseq_entmax.analysis.schema
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fairseq_entmax.analysis.measures import ImportanceMeasure, Number, measures
from fairseq_entmax.analysis.measures.base import JsonSchema

SCHEMA = Path(__file__).with_name("analysis.schema.json")
WIDTH = 140
_FRAME = {
    "head": ("head",),
    "layer": ("attention", "layer", "mapping", "heads"),
    "settings": ("measures",),
}
_KINDS: dict[type, JsonSchema] = {
    int: {"$ref": "#/$defs/count"},
    float: {"type": "number"},
    list: {"type": "array", "items": {"type": "number"}},
}


def schema(declared: Iterable[Number] = ()) -> JsonSchema:
    """The JSON Schema of ``analysis.json``.

    Args:
        declared: numbers that a document says it has. Those of a measure that is not registered
            here may be there, and are anything.
    """
    found: JsonSchema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    head: JsonSchema = {}
    layer: JsonSchema = {}
    for measure in measures():
        head |= measure.fields()
        layer |= measure.layer_fields()
    for number in declared:
        (layer if number.of_layer else head).setdefault(number.place[0], {})
    settings = {name: _KINDS[type(value)] for name, value in all_settings().items()}
    definitions = found["$defs"]
    for name, fields in (("head", head), ("layer", layer), ("settings", settings)):
        frame = {key: definitions[name]["properties"][key] for key in _FRAME[name]}
        definitions[name]["properties"] = frame | {
            k: v for k, v in fields.items() if k not in frame
        }
        definitions[name]["required"] = list(definitions[name]["properties"])
    return found


def all_settings() -> dict[str, Any]:
    """What the measures depend on, by name, with how many sentences the costly ones take."""
    settings: dict[str, Any] = {}
    for measure in measures():
        settings |= measure.settings
        if isinstance(measure, ImportanceMeasure):
            settings[f"{measure.name}_sentences"] = measure.sentences
    return settings


def as_text(value: Any, indent: int = 0) -> str:
    """JSON, with what is short, or has no objects in it, on one line."""
    text = json.dumps(value, ensure_ascii=False)
    is_leaf = not isinstance(value, dict | list) or "{" not in text[1:]
    if is_leaf or indent + len(text) <= WIDTH:
        return text
    inner = indent + 2
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {as_text(one, inner)}" for key, one in value.items()]
    else:
        parts = [as_text(one, inner) for one in value]
    space = "\n" + " " * inner
    return f"{text[0]}{space}{(',' + space).join(parts)}\n{' ' * indent}{text[-1]}"


if __name__ == "__main__":
    SCHEMA.write_text(as_text(schema()) + "\n", encoding="utf-8")
