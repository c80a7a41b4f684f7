"""What the schema of ``analysis.json`` cannot say: that its parts fit each other."""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.arguments import GENERATED, REFERENCE
from fairseq_entmax.analysis.groups import check_groups, decoded_groups
from fairseq_entmax.analysis.maps import LARGEST, check_weights, decoded, map_bytes
from fairseq_entmax.analysis.measures.base import declared
from fairseq_entmax.attentions import CROSS, ENCODER_SELF

# Of what data is not said of each kind
_MISSING: dict[str | None, set[str]] = {
    None: {"samples", "labels"},
    "text": {"source_lang", "target_lang", "source_tokens", "labels"},
    "labelled": {"source_lang", "target_lang", "target_tokens", "samples"},
}


def check(analysis: dict[str, Any], name: str) -> None:
    """Refuse a document whose parts do not fit each other.

    Layers and heads of models are each there once, and numbered; all models are of one kind of
    text, the reference or what they generated; the description of numbers
    leads to numbers, and describes each once; maps fit their tokens and the models. The sizes
    of all maps are looked at before any weight is inflated.

    Args:
        analysis: in the form of the schema.
        name: what to call it in errors.

    Raises:
        ValueError: names the place.
    """
    where = ""
    try:
        _check_data(analysis["data"])
        _check_chosen(analysis.get("chosen", {"by": "asked"}))
        _check_models(analysis)
        _check_text(analysis)
        _check_classes(analysis)
        _check_numbers(analysis)
        maps = _checked_maps(analysis)
        total = sum(map_bytes(one["shape"]) for one in maps.values())
        for place, one in maps.items() if total <= LARGEST else ():
            where = f"{place}: "
            weights, groups = decoded(one), decoded_groups(one)
            check_weights(weights)
            if groups is not None:
                check_groups(groups, weights)
    except ValueError as error:
        raise ValueError(f"{name} is damaged at $.{where}{error}") from None
    if total > LARGEST:
        raise ValueError(
            f"the weights in {name} are {total:,} bytes, and a report shows {LARGEST:,} at most: "
            f"analyse fewer or shorter sentences, by --sentences"
        )


def _check_data(data: dict[str, Any]) -> None:
    """Pairs of texts have all that is said of pairs; other data has not."""
    pairs = {"source_lang", "target_lang", "source_tokens", "target_tokens"}
    missing = _MISSING.get(data.get("kind"), set())
    for name in sorted(pairs | {"samples", "labels"}):
        is_there = data.get(name) is not None
        if is_there != (name not in missing):
            raise ValueError(f"data.{name}: it is {data.get(name)!r:.80}, and the data is not so")


def _check_chosen(chosen: dict[str, Any]) -> None:
    """What was chosen by its length has the lengths of the data, in their order."""
    lengths = chosen.get("lengths")
    if (lengths is None) != (chosen["by"] == "asked"):
        raise ValueError(f"chosen.lengths: they are {lengths!r:.80}, by {chosen['by']}")
    if lengths is not None and lengths != sorted(lengths):
        raise ValueError(f"chosen.lengths: {lengths} do not ascend")


def _check_models(analysis: dict[str, Any]) -> None:
    for number, model in enumerate(analysis["models"]):
        seen = set()
        for place, layer in enumerate(model["attentions"]):
            where = f"models[{number}].attentions[{place}]"
            key = (layer["attention"], layer["layer"])
            if key in seen:
                raise ValueError(f"{where}: layer {key[1]} of {key[0]} is there twice")
            seen.add(key)
            for index, head in enumerate(layer["heads"]):
                if head["head"] != index:
                    raise ValueError(f"{where}.heads[{index}].head: it is {head['head']}")
            copying = layer.get("copy_heads", [])
            if copying and (key[0] != CROSS or max(copying) >= len(layer["heads"])):
                raise ValueError(f"{where}.copy_heads: {copying} are no heads of it that can copy")


def _check_text(analysis: dict[str, Any]) -> None:
    """Models of one document have attention on one kind of text, and it says so."""
    is_generated = analysis.get("of") == GENERATED
    if ("search" in analysis) != is_generated:
        raise ValueError(f"search: it is of {analysis.get('of', REFERENCE)} text")
    for number, model in enumerate(analysis["models"]):
        if ("generated" in model) != is_generated:
            raise ValueError(
                f"models[{number}].generated: the document is of {analysis.get('of', REFERENCE)} "
                f"text, and the model is not"
            )
    for number, entry in enumerate(analysis["maps"]):
        own = entry.get("model")
        is_one = own is not None and own < len(entry["models"])
        others = [maps for place, maps in enumerate(entry["models"]) if place != own]
        if is_generated and not (is_one and not any(others)):
            raise ValueError(f"maps[{number}].model: generated text is of one model alone")
        if not is_generated and own is not None:
            raise ValueError(f"maps[{number}].model: the reference is of every model")


def _check_classes(analysis: dict[str, Any]) -> None:
    """What is said of classes is of the labels there are, and of the tokens of each sentence."""
    labels, models = analysis["data"].get("labels"), analysis["models"]
    number = len(labels or ())
    for place, model in enumerate(models):
        where, own = f"models[{place}].classification", model.get("classification")
        if (own is None) != (labels is None):
            raise ValueError(f"{where}: it is of texts with labels alone")
        rows = [] if own is None else [own["confusion"], *own["confusion"]]
        if own is not None and any(len(row) != number for row in rows):
            raise ValueError(f"{where}.confusion: there are {number} labels")
        for index, pooling in enumerate([] if own is None else own["pooling"]):
            if len(pooling["words"]) != number:
                raise ValueError(f"{where}.pooling[{index}].words: there are {number} labels")
    for place, entry in enumerate(analysis["maps"]):
        where, said = f"maps[{place}]", entry.get("classified")
        if (said is None) != (labels is None) or (entry.get("label") is None) != (labels is None):
            raise ValueError(f"{where}.classified: it is of texts with labels alone")
        if said is None:
            continue
        if len(said) != len(models):
            raise ValueError(f"{where}.classified: it is of {len(said)} models")
        if max([entry["label"], *(one["label"] for one in said)]) >= number:
            raise ValueError(f"{where}.label: there are {number} labels")
        tokens = len(entry["source"])
        rows = [row for one in said for of in one["pooling"].values() for row in of]
        if any(len(row) != tokens for row in rows):
            raise ValueError(f"{where}.classified: its weights are not of {tokens} tokens")


def _check_numbers(analysis: dict[str, Any]) -> None:
    names = set()
    layers = [layer for model in analysis["models"] for layer in model["attentions"]]
    for place, number in enumerate(declared(analysis)):
        if number.name in names:
            raise ValueError(f"numbers[{place}].name: {number.name!r:.80} is there twice")
        names.add(number.name)
        for value in (number.of(head, layer) for layer in layers for head in layer["heads"]):
            if isinstance(value, bool) or not isinstance(value, int | float | None):
                raise ValueError(f"numbers[{place}].place: there is no number, but {value!r:.80}")


def _checked_maps(analysis: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The maps by their place: of layers that are there, and of their heads and tokens."""
    maps: dict[str, dict[str, Any]] = {}
    models = analysis["models"]
    for number, entry in enumerate(analysis["maps"]):
        place = f"maps[{number}]"
        if len(entry["models"]) != len(models):
            raise ValueError(
                f"{place}.models: it is of {len(entry['models'])} models, and the analysis of "
                f"{len(models)}"
            )
        source, target, targets = map(len, (entry["source"], entry["queries"], entry["targets"]))
        if targets != target:
            raise ValueError(
                f"{place}.targets: there are {targets}, and {target} queries that predict them"
            )
        sizes = {ENCODER_SELF: (source, source), CROSS: (target, source)}
        for index, (model, layers) in enumerate(zip(models, entry["models"], strict=True)):
            heads = {(one["attention"], one["layer"]): one["heads"] for one in model["attentions"]}
            for layer, one in enumerate(layers):
                where, shape = f"{place}.models[{index}][{layer}]", one["shape"]
                own = heads.pop((one["attention"], one["layer"]), None)
                if own is None:
                    raise ValueError(
                        f"{where}: the model has no layer {one['layer']} of {one['attention']}, or "
                        f"it is here twice"
                    )
                size = sizes.get(one["attention"], (target, target))
                if tuple(shape[1:]) != size:
                    raise ValueError(
                        f"{where}.shape: {shape} does not fit {size[0]} queries and {size[1]} keys"
                    )
                if shape[0] != len(own):
                    raise ValueError(f"{where}.shape: {shape} does not fit the heads of that layer")
                maps[where] = one
    return maps
