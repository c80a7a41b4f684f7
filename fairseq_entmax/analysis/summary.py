"""An analysis as a table of text: a line for each attention of each model."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping as Dictionary
from typing import Any

from fairseq_entmax.analysis.measures.base import declared
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.text_table import text_table


def as_table(analysis: Dictionary[str, Any]) -> str:
    """The table.

    Args:
        analysis: a document of ``analysis.json``.

    Returns:
        Lines with means of the numbers that are to be in it, first those of the mappings, such
        as alpha, over heads, or over layers where they are of a layer; and the positional heads,
        each with its offset and its confidence.
    """
    numbers = [number for number in declared(analysis) if number.in_summary]
    numbers.sort(key=lambda number: number.place[0] != "values")
    rows = [["model", "loss", "attention", *(one.name for one in numbers), "positional heads"]]
    for model in analysis["models"]:
        first = [model["name"], _text(model["loss"])]
        for attention in ATTENTIONS:
            layers = [layer for layer in model["attentions"] if layer["attention"] == attention]
            if not layers:
                continue
            means = [
                _mean(
                    number.of(head, layer)
                    for layer in layers
                    for head in ([{}] if number.of_layer else layer["heads"])
                )
                for number in numbers
            ]
            rows.append([*first, attention, *means, _positional(layers)])
            first = ["", ""]
    return text_table(rows, left=(0, 2, len(rows[0]) - 1))


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
        if head["positional"]
    )
