"""An analysis as a table of text: a line for each attention of each model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fairseq_entmax.attentions import ATTENTIONS

_COLUMNS = ("alpha", "density", "entropy", "confidence", "diversity")


def as_table(analysis: Mapping[str, Any]) -> str:
    """The table.

    Args:
        analysis: a document of ``analysis.json``.

    Returns:
        Lines with the mean over heads of alpha, density, entropy and confidence, the mean over
        layers of diversity, and the positional heads, each with its offset and its confidence.
    """
    rows: list[tuple[str, ...]] = [("model", "loss", "attention", *_COLUMNS, "positional heads")]
    for model in analysis["models"]:
        for attention in ATTENTIONS:
            layers = [layer for layer in model["attentions"] if layer["attention"] == attention]
            if not layers:
                continue
            is_first = model["name"] not in (row[0] for row in rows)
            heads = [head for layer in layers for head in layer["heads"]]
            means = [_mean(head[name] for head in heads) for name in _COLUMNS[:-1]]
            rows.append(
                (
                    model["name"] if is_first else "",
                    _number(model["loss"]) if is_first else "",
                    attention,
                    *means,
                    _mean(layer["diversity"] for layer in layers),
                    _positional(layers),
                )
            )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            text.rjust(width) if place == 1 or 3 <= place <= 7 else text.ljust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _mean(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return _number(sum(known) / len(known) if known else None)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _positional(layers: Iterable[Mapping[str, Any]]) -> str:
    return ", ".join(
        f"{layer['layer']}.{head['head']} at {head['positional']['offset']:+d} "
        f"({head['positional']['confidence']:.0%})"
        for layer in layers
        for head in layer["heads"]
        if head["positional"]
    )
