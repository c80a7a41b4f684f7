"""Analyses of version 1 of the format, as those of version 2.

Version 1 knew one number of a mapping: ``alpha`` stood in the head itself, its record in
``alpha_record``, and the mapping's text said whether it was learned. What there is to show of
heads was not in the file.
"""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.measures import numbers_of
from fairseq_entmax.mappings.registry import parse_mapping
from fairseq_entmax.reasons import reason


def converted(analysis: dict[str, Any], name: str) -> dict[str, Any]:
    """A document of version 2, to be validated as such; the one given is changed.

    Args:
        analysis: what was read.
        name: what to call it in errors.

    Raises:
        ValueError: it is not in the form of version 1, or names an unknown mapping.
    """
    try:
        for number, model in enumerate(analysis["models"]):
            record = model.pop("alpha_record")
            lines = [{"update": one["update"], "values": one["alpha"]} for one in record or ()]
            model["records"] = {"alpha": lines} if lines else {}
            for place, layer in enumerate(model["attentions"]):
                where = f"{name} is damaged at $.models[{number}].attentions[{place}].mapping"
                layer["learned"] = ["alpha"] if _learns_alpha(layer["mapping"], where) else []
                for head in layer["heads"]:
                    head["values"] = {"alpha": head.pop("alpha")}
        analysis["version"] = 2
        # Measures of later releases are not in it
        layers = [layer for model in analysis["models"] for layer in model["attentions"]]
        fields = {name for layer in layers for one in (layer, *layer["heads"]) for name in one}
        numbers = (number for number in numbers_of(analysis) if number.place[0] in fields)
        analysis["numbers"] = [number.as_json() for number in numbers]
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(
            f"{name} is damaged: it is not in the form of version 1 ({reason(error)})"
        ) from None
    return analysis


def _learns_alpha(mapping: Any, where: str) -> bool:
    """Whether heads with this mapping learned their alpha; None is the mapping of no heads."""
    try:
        spec = None if mapping is None else parse_mapping(mapping)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return spec is not None and spec.name == "entmax" and "alpha" not in spec.parameters
