"""The overview as files: layers by heads, coloured by a measure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from fairseq_entmax.analysis.measures.base import Number
from fairseq_entmax.analysis.report import charts
from fairseq_entmax.analysis.report.ablation_table import Ablation
from fairseq_entmax.analysis.report.catalogue import Drawable
from fairseq_entmax.analysis.report.charts import Analysis, Figure, Row
from fairseq_entmax.analysis.report.decimals import cell_digits, decimal
from fairseq_entmax.analysis.report.drawings import LIGHT_INK_FROM, absent, filled, grid_of
from fairseq_entmax.analysis.report.payload import ablation_measures, copies, measures_of
from fairseq_entmax.head_names import Head

_SIGNS = {"@-": "_minus", "@+": "_plus", "@": "_", "-": "_"}


def grids(analysis: Analysis, ablations: Sequence[Ablation] = ()) -> Iterator[Drawable]:
    """A grid for each measure of all models, and of each alone.

    Usual are those of all models and of the measures that the list of heads has; the others are
    drawn where they are named.
    """
    models = charts.model_names(analysis)
    removed = {one.model: one.scores for one in ablations}
    for number in [*measures_of(analysis), *ablation_measures(ablations)]:
        rows = partial(_rows, analysis, number, removed)
        name = file_name(number)
        yield Drawable(name, number.is_main, partial(_grid, analysis, number, rows, name, models))
        for suffix, model in charts.model_suffixes(models):
            own = name + suffix
            yield Drawable(own, False, partial(_grid, analysis, number, rows, own, [model]))


def file_name(number: Number) -> str:
    """Such as ``grid_density``, ``grid_weight_minus4``."""
    name = number.name
    for sign, word in _SIGNS.items():
        name = name.replace(sign, word)
    return "grid_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)


def _grid(
    analysis: Analysis,
    number: Number,
    rows: Callable[[], Iterable[Row]],
    name: str,
    models: Sequence[str],
) -> Figure:
    every = list(rows())
    shown = [row for row in every if row["model"] in models]
    values = [row["value"] for row in every if row["value"] is not None]
    low, high = number.range or (min(values), max(values))
    digits = cell_digits(low, high)
    shown = [{**row, "text": decimal(row["value"], digits)} for row in shown]
    caption = f"{number.title} of every head: {number.meaning}."
    if any(row["copies"] for row in every):
        caption += " Words are copied by the heads in a frame."
    legend = {
        "title": number.title,
        "orient": "top",
        "gradientLength": 120,
        "titleLimit": 0,
        "values": [low, high],
        "format": ".3~f" if digits == 2 else ".2~g",
    }
    spec = filled(
        grid_of(analysis, models),
        {
            "rows": shown + absent(shown),
            "domain": [low, high] if high > low else [low - 1, low + 1],
            "middle": str(low + LIGHT_INK_FROM * (high - low) if high > low else low + 1),
            "legend": legend if high > low else None,
            "description": caption,
        },
    )
    return Figure(name, number.title, caption, charts.Described(spec))


def _rows(
    analysis: Analysis, number: Number, removed: dict[str, dict[str, dict[Head, dict[str, float]]]]
) -> Iterator[Row]:
    for model in analysis["models"]:
        for layer in model["attentions"]:
            for head in layer["heads"]:
                place = Head(layer["attention"], layer["layer"], head["head"])
                changes = {
                    score: heads[place]["change"]
                    for score, heads in removed.get(model["name"], {}).items()
                    if place in heads
                }
                value = number.of({**head, "ablation": changes}, layer)
                yield {
                    "model": model["name"],
                    "attention": layer["attention"],
                    "layer": layer["layer"],
                    "head": head["head"],
                    "value": None if value is None else charts.rounded(value),
                    "copies": copies(head, layer),
                }
