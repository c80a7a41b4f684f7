"""What the schema of ``analysis.json`` cannot say: that its parts fit each other."""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.maps import LARGEST, check_weights, decoded, map_bytes
from fairseq_entmax.analysis.measures.base import declared
from fairseq_entmax.attentions import CROSS, ENCODER_SELF


def check_models(analysis: dict[str, Any], name: str) -> None:
    """Refuse models whose layers and heads are not each there once, and numbered.

    Args:
        analysis: in the form of the schema.
        name: what to call it in errors.

    Raises:
        ValueError: names the place.
    """
    for number, model in enumerate(analysis["models"]):
        seen = set()
        for place, layer in enumerate(model["attentions"]):
            where = f"{name} is damaged at $.models[{number}].attentions[{place}]"
            key = (layer["attention"], layer["layer"])
            if key in seen:
                raise ValueError(f"{where}: layer {key[1]} of {key[0]} is there twice")
            seen.add(key)
            for index, head in enumerate(layer["heads"]):
                if head["head"] != index:
                    raise ValueError(f"{where}.heads[{index}].head: it is {head['head']}")


def check_numbers(analysis: dict[str, Any], name: str) -> None:
    """Refuse a description of numbers that does not lead to numbers, or describes one twice.

    Args:
        analysis: in the form of the schema.
        name: what to call it in errors.

    Raises:
        ValueError: names the place.
    """
    names = set()
    layers = [layer for model in analysis["models"] for layer in model["attentions"]]
    for place, number in enumerate(declared(analysis)):
        where = f"{name} is damaged at $.numbers[{place}]"
        if number.name in names:
            raise ValueError(f"{where}.name: {number.name!r:.80} is there twice")
        names.add(number.name)
        for layer in layers:
            for head in layer["heads"]:
                value = number.of(head, layer)
                if isinstance(value, bool) or not isinstance(value, int | float | None):
                    raise ValueError(f"{where}.place: there is no number, but {value!r:.80}")


def check_maps(analysis: dict[str, Any], name: str) -> None:
    """Refuse maps that do not fit their tokens, or the models.

    All sizes are looked at before any weight is inflated.

    Args:
        analysis: in the form of the schema.
        name: what to call it in errors.

    Raises:
        ValueError: names the place.
    """
    total = 0
    places: list[tuple[str, dict[str, Any]]] = []
    for number, entry in enumerate(analysis["maps"]):
        place = f"{name} is damaged at $.maps[{number}]"
        if len(entry["models"]) != len(analysis["models"]):
            raise ValueError(
                f"{place}.models: it is of {len(entry['models'])} models, and the analysis of "
                f"{len(analysis['models'])}"
            )
        if len(entry["targets"]) != len(entry["queries"]):
            raise ValueError(
                f"{place}.targets: there are {len(entry['targets'])}, and "
                f"{len(entry['queries'])} queries that predict them"
            )
        for model, layers in enumerate(entry["models"]):
            heads = {
                (layer["attention"], layer["layer"]): len(layer["heads"])
                for layer in analysis["models"][model]["attentions"]
            }
            for layer, one in enumerate(layers):
                places.append((f"{place}.models[{model}][{layer}]", one))
                _check_shape(places[-1][0], one, entry, heads)
                total += map_bytes(one["shape"])
    if total > LARGEST:
        raise ValueError(
            f"the weights in {name} are {total:,} bytes, and a report shows {LARGEST:,} at most: "
            f"analyse fewer or shorter sentences, by --sentences"
        )
    for place, one in places:
        try:
            check_weights(decoded(one))
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from None


def _check_shape(
    place: str, one: dict[str, Any], entry: dict[str, Any], heads: dict[tuple[str, int], int]
) -> None:
    """Refuse a shape that is not of the heads and tokens. Each layer is there once."""
    key = (one["attention"], one["layer"])
    if key not in heads:
        raise ValueError(
            f"{place}: the model has no layer {key[1]} of {key[0]}, or it is here twice"
        )
    source, target = len(entry["source"]), len(entry["queries"])
    sizes = {ENCODER_SELF: (source, source), CROSS: (target, source)}
    size = sizes.get(one["attention"], (target, target))
    if tuple(one["shape"][1:]) != size:
        raise ValueError(
            f"{place}.shape: {one['shape']} does not fit {size[0]} queries and {size[1]} keys"
        )
    if one["shape"][0] != heads.pop(key):
        raise ValueError(f"{place}.shape: {one['shape']} does not fit the heads of that layer")
