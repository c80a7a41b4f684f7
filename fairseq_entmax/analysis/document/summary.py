"""An analysis as a text table, with one line for each attention of each model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Dictionary
from typing import Any

from fairseq_entmax.analysis.data import GENERATED
from fairseq_entmax.analysis.measures.base import declared
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.mappings import PerHeadSpec, parse_mappings
from fairseq_entmax.text_table import text_table


def as_table(analysis: Dictionary[str, Any]) -> str:
    """Return the table, with the lines before it and notes on missing records after it."""
    numbers = [number for number in declared(analysis) if number.in_summary]
    numbers.sort(key=lambda number: number.place[0] != "values")
    is_generated = analysis.get("of") == GENERATED
    copies = any("copying" in model for model in analysis["models"])
    unit = "text" if analysis["data"].get("kind") == "labelled" else "token"
    of = "of its own text, " if is_generated else ""
    losses = [f"loss ({of}nats a {unit})", f"(bits a {unit})"]
    names = (one.name for one in numbers)
    rows = [["model", *losses, "attention", *names, "positional heads", *["copy heads"] * copies]]
    for model in analysis["models"]:
        nats = model["loss"]
        # In bits, as fairseq logs ``nll_loss``
        bits = None if nats is None else nats / math.log(2)
        first = [model["name"], _text(nats), _text(bits)]
        for attention in ATTENTIONS:
            layers = [layer for layer in model["attentions"] if layer["attention"] == attention]
            if not layers:
                continue
            means = [
                _mean(
                    number.of(head, layer)
                    for layer in layers
                    for head in ([{}] if number.of_layer else layer["heads"])
                    if head.get("gate") != 0
                )
                for number in numbers
            ]
            last = [_positional(layers), *[_copying(layers)] * copies]
            rows.append([*first, attention, *means, *last])
            first = ["", "", ""]
    table = text_table(rows, left_aligned=(0, 3, *range(len(rows[0]) - 1 - copies, len(rows[0]))))
    records = (
        f"{model['name']}: no {name}.jsonl of this model beside {model['checkpoint']}: reports "
        f"cannot show the training of {name}"
        for model in analysis["models"]
        for name in missing_records(model)
    )
    return "\n".join([*_before(analysis), table, *records])


def missing_records(model: Dictionary[str, Any]) -> list[str]:
    """Return the values that a model's heads learned but of which its entry has no record."""
    layers = [layer for layer in model["attentions"] if layer["heads"]]
    learned = dict.fromkeys(name for layer in layers for name in layer["learned"])
    return [name for name in learned if name not in model["records"]]


def learned_values(layer: Dictionary[str, Any], name: str) -> list[float | None]:
    """Return a number per head of a layer's entry; None for heads that do not learn it."""
    values = [head["values"].get(name) for head in layer["heads"]]
    try:
        (spec,) = parse_mappings(layer["mapping"] or "")
    except ValueError:  # a mapping that is not registered here
        return values
    if not isinstance(spec, PerHeadSpec) or len(spec.heads) != len(values):
        return values
    learns = (name in one.build().learned for one in spec.heads)
    return [value if is_one else None for value, is_one in zip(values, learns, strict=True)]


def _before(analysis: Dictionary[str, Any]) -> Iterable[str]:
    """Yield lines on generated text, on targets without a probability, and on accuracy."""
    is_generated = analysis.get("of") == GENERATED
    if is_generated:
        yield f"attention on text that each model generated: {search_text(analysis['search'])}"
    for model in analysis["models"]:
        if is_generated:
            made = model["generated"]
            yield (
                f"{model['name']}: {made['tokens']} tokens, {made['empty']} empty sentences, "
                f"{made['longest']} at the length limit"
            )
        if "output" in model:
            output = model["output"]
            yield (
                f"{model['name']}: its output gives {output['support'] or 0:.1f} words a nonzero "
                f"probability; the loss leaves out {output['unreachable']} targets without one"
            )
        if "accuracy" in model:
            yield f"{model['name']}: accuracy {model['accuracy']['share'] or 0:.1%}"


def search_text(search: Dictionary[str, Any]) -> str:
    """Describe a document's search in words: options with their values, without empty ones."""
    named = {
        name.replace("_", "-"): value
        for name, value in search.items()
        if value or name in ("lenpen", "min_len", "max_len_b")  # their default is not 0
    }
    return ", ".join(name if value is True else f"{name} {value}" for name, value in named.items())


def _copying(layers: Sequence[Dictionary[str, Any]]) -> str:
    agreements = {
        (layer["layer"], head["head"]): (head.get("copy_agreement") or {}).get("largest")
        for layer in layers
        for head in layer["heads"]
    }
    copying = [(layer["layer"], head) for layer in layers for head in layer.get("copy_heads", [])]
    known = {place: agreements.get(place) for place in copying}
    words = [
        f"{layer}.{head}" + ("" if share is None else f" ({share:.0%})")
        for (layer, head), share in known.items()
    ]
    others = [(one, *place) for place, one in agreements.items() if place not in copying and one]
    if copying and others:
        best, layer, head = max(others)
        words.append(f"next {layer}.{head} ({best:.0%})")
    return ", ".join(words)


def _mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _text(sum(known) / len(known) if known else None)


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _positional(layers: Iterable[Dictionary[str, Any]]) -> str:
    return ", ".join(
        f"{layer['layer']}.{head['head']} at {head['positional']['offset']:+d} "
        f"({head['positional']['confidence']:.0%})"
        for layer in layers
        for head in layer["heads"]
        if head["positional"] and head["gate"] != 0
    )
