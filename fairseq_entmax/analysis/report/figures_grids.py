"""The overview as files: layers by heads, coloured by a measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from fairseq_entmax.analysis.measures.base import Number
from fairseq_entmax.analysis.report import charts
from fairseq_entmax.analysis.report.catalogue import Drawable
from fairseq_entmax.analysis.report.charts import Analysis, Figure, Row
from fairseq_entmax.analysis.report.decimals import decimal
from fairseq_entmax.analysis.report.drawings import LIGHT_INK_FROM, filled, grid_template
from fairseq_entmax.analysis.report.payload import copies, measures_of
from fairseq_entmax.attentions import ATTENTIONS

_SIGNS = {"@-": "_minus", "@+": "_plus", "@": "_", "-": "_"}


def grids(analysis: Analysis) -> Iterator[Drawable]:
    """A grid for each measure of all models, and of each alone.

    Usual are those of all models and of the measures that the list of heads has; the others are
    drawn where they are named.
    """
    models = charts.model_names(analysis)
    for number in measures_of(analysis):
        name = file_name(number)
        yield Drawable(name, number.is_main, partial(_grid, analysis, number, name, models))
        for suffix, model in charts.model_suffixes(models):
            own = name + suffix
            yield Drawable(own, False, partial(_grid, analysis, number, own, [model]))


def file_name(number: Number) -> str:
    """Such as ``grid_density``, ``grid_weight_minus4``."""
    name = number.name
    for sign, word in _SIGNS.items():
        name = name.replace(sign, word)
    return "grid_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)


def page_template(analysis: Analysis) -> dict[str, Any]:
    """The grid of all models, to be filled in by a page."""
    return _template(analysis, charts.model_names(analysis))


def _template(analysis: Analysis, models: Sequence[str]) -> dict[str, Any]:
    entries = [
        entry
        for model in analysis["models"]
        if model["name"] in models
        for entry in model["attentions"]
        if entry["heads"]
    ]
    attentions = charts.present(entries, "attention", ATTENTIONS)
    layers = sorted({entry["layer"] for entry in entries})
    heads = 1 + max((head["head"] for entry in entries for head in entry["heads"]), default=0)
    return grid_template(models, attentions, layers, heads)


def _grid(analysis: Analysis, number: Number, name: str, models: Sequence[str]) -> Figure:
    every = list(_rows(analysis, number))
    values = [row["value"] for row in every if row["value"] is not None]
    low, high = number.range or (min(values), max(values))
    caption = f"{number.title} of every head: {number.meaning}."
    if any(row["copies"] for row in every):
        caption += " Words are copied by the heads in a frame."
    legend = {"title": number.title, "orient": "top", "gradientLength": 120, "titleLimit": 0}
    spec = filled(
        _template(analysis, models),
        {
            "rows": [row for row in every if row["model"] in models],
            "domain": [low, high] if high > low else [low - 1, low + 1],
            "middle": str(low + LIGHT_INK_FROM * (high - low) if high > low else low + 1),
            "legend": legend if high > low else None,
            "description": caption,
        },
    )
    return Figure(name, number.title, caption, charts.Described(spec))


def _rows(analysis: Analysis, number: Number) -> Iterator[Row]:
    for model in analysis["models"]:
        for layer in model["attentions"]:
            for head in layer["heads"]:
                value = number.of(head, layer)
                yield {
                    "model": model["name"],
                    "attention": layer["attention"],
                    "layer": layer["layer"],
                    "head": head["head"],
                    "value": None if value is None else charts.rounded(value),
                    "text": decimal(value, 2),
                    "copies": copies(head, layer),
                }
