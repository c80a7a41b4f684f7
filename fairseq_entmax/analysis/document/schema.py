"""The JSON Schema of ``analysis.json``: the frame in ``analysis.schema.json``, filled in with the
fields of all registered measures. ``python -m fairseq_entmax.analysis.document`` prints it."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from fairseq_entmax.analysis.measures import ImportanceMeasure, Number, measures
from fairseq_entmax.analysis.measures.base import JsonSchema
from fairseq_entmax.analysis.measures.model_measures import MODEL_MEASURES

SCHEMA = Path(__file__).with_name("analysis.schema.json")
_FRAME = {
    "head": ("head",),
    "layer": ("attention", "layer", "mapping", "heads"),
    "settings": ("measures",),
}
# Optional keys that belong to no measure
_OPTIONAL = {"layer": ("copy_heads", "density_sorted"), "head": ("standard_errors",)}
_KINDS: dict[type, JsonSchema] = {
    int: {"$ref": "#/$defs/count"},
    float: {"type": "number"},
    list: {"type": "array", "items": {"type": "number"}},
}


def schema(declared: Collection[Number] | None = None) -> JsonSchema:
    """Return the schema; fields of measures that a document has not ``declared`` are optional."""
    document: JsonSchema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    shapes: dict[str, JsonSchema] = {name: {} for name in _FRAME}
    required: dict[str, list[str]] = {name: list(keys) for name, keys in _FRAME.items()}
    roots = {number.place[0] for number in declared or ()}
    document["$defs"]["model"]["properties"] |= {one.name: one.schema for one in MODEL_MEASURES}
    for measure in measures():
        schemas = {"head": measure.fields(), "layer": measure.layer_fields()}
        schemas["settings"] = {key: _KINDS[type(one)] for key, one in measure.settings.items()}
        if isinstance(measure, ImportanceMeasure):
            schemas["settings"][measure.option] = _KINDS[int]
        is_there = not measure.is_optional or roots & {*schemas["head"], *schemas["layer"]}
        for name, fields in schemas.items():
            shapes[name] |= fields
            required[name] += fields if declared is None or is_there else ()
    for number in declared or ():
        shapes["layer" if number.of_layer else "head"].setdefault(number.place[0], {})
    for name, keys in _FRAME.items():
        known = document["$defs"][name]["properties"]
        frame = {key: known[key] for key in (*keys, *_OPTIONAL.get(name, ()))}
        document["$defs"][name]["properties"] = {**frame, **shapes[name], **frame}
        document["$defs"][name]["required"] = required[name]
    return document
