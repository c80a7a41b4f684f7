"""Grids of layers by heads, coloured by a measure, for the page's overview and as files."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from fairseq_entmax.analysis.measures.base import Number
from fairseq_entmax.analysis.report import charts
from fairseq_entmax.analysis.report.charts import Analysis, Drawable, Figure, Row, alt
from fairseq_entmax.analysis.report.labels import decimal
from fairseq_entmax.analysis.report.payload import copies, measures_of, values_of
from fairseq_entmax.attentions import ATTENTIONS

_HEAD = 34  # pixels
# Text and frames on cells, whatever the page's colours
_INK = "#14161a"
_SIGNS = {"@-": "_minus", "@+": "_plus", "@": "_", "-": "_"}


def grids(analysis: Analysis) -> Iterator[Drawable]:
    """A grid per measure for all models, and per model; usual: main measures of all models."""
    models = charts.model_names(analysis)
    for number in measures_of(analysis):
        name = file_name(number)
        yield Drawable(name, number.is_main, partial(_grid, analysis, number, name, models))
        for suffix, model in charts.model_suffixes(models):
            draw = partial(_grid, analysis, number, name + suffix, [model])
            yield Drawable(name + suffix, False, draw)


def file_name(number: Number) -> str:
    """The name of a grid's file, such as ``grid_density`` or ``grid_weight_minus4``."""
    name = number.name
    for sign, word in _SIGNS.items():
        name = name.replace(sign, word)
    return "grid_" + "".join(c if c.isalnum() and c.isascii() else "_" for c in name)


def _grid(analysis: Analysis, number: Number, name: str, models: Sequence[str]) -> Figure:
    values = values_of(analysis, number)
    ends = number.range or (min(values), max(values))
    digits = 2 if max(map(abs, ends)) >= 0.1 else 3
    rows = list(_rows(analysis, models, number, digits))
    caption = f"{number.title} of every head: {number.meaning}."
    if any(row["copies"] for row in rows):
        caption += " Heads in a frame copy words."
    is_scale = ends[0] < ends[1]
    color = alt.Color(
        "value:Q",
        scale=alt.Scale(domain=list(ends if is_scale else (ends[0] - 1, ends[1] + 1))),
        title=number.title,
        # If all values are equal, there is no scale to explain
        legend=_legend(values=list(ends), format=".3~g") if is_scale else None,
    )
    chart = _chart(analysis, models, color).properties(description=caption)
    return Figure(name, number.title, caption, chart, rows)


def _legend(**options: Any) -> alt.Legend:
    return alt.Legend(orient="top", gradientLength=120, titleLimit=0, **options)


def page_charts(analysis: Analysis) -> dict[str, Any]:
    """Specifications of the overview and of a head's details. The page's script adds the rows and,
    in the overview, the title and scale of the colours and the ``chosen`` head."""
    color = alt.Color("value:Q", scale=alt.Scale(domain=[0, 1]), title="", legend=_legend())
    overview = _chart(analysis, charts.model_names(analysis), color, is_page=True)
    overview = overview.add_params(alt.param(name="chosen", value=""))
    rows = alt.Chart(alt.NamedData("rows")).properties(width=260, height=100)
    x = alt.X("offset:N", sort=None, title="relative offset", axis=alt.Axis(labelAngle=0))
    shares = [alt.Tooltip("largest:Q", format=".1%"), alt.Tooltip("weight:Q", format=".3f")]
    y = alt.Y("largest:Q", title="share", scale=charts.SHARE)
    bars = rows.mark_bar().encode(x=x, y=y, tooltip=["offset:N", *shares])
    strokes = rows.mark_tick(color=charts.COLOURS[1], thickness=2).encode(x=x, y="weight:Q")
    density = rows.mark_bar(binSpacing=1).encode(
        x=alt.X("from:Q", bin="binned", title="density", scale=charts.SHARE),
        x2="to:Q",
        y=alt.Y("sentences:Q", axis=alt.Axis(tickCount=3)),
        tooltip=["from:Q", "to:Q", "sentences:Q"],
    )
    made = {"overview": overview, "offsets": bars + strokes, "density": density}
    return {name: Figure(name, "", "", chart).for_page() for name, chart in made.items()}


def _rows(analysis: Analysis, models: Sequence[str], number: Number, digits: int) -> Iterator[Row]:
    """A row for each place; places without a head have no text."""
    there = {
        (model["name"], layer["attention"], layer["layer"], head["head"]): (head, layer)
        for model in analysis["models"]
        for layer in model["attentions"]
        for head in layer["heads"]
    }
    for place in itertools.product(models, *_sides(analysis, models)):
        row: Row = dict(zip(("model", "attention", "layer", "head"), place, strict=True))
        if place not in there:
            yield {**row, "value": None, "text": "", "copies": False}
            continue
        head, layer = there[place]
        value = number.of(head, layer)
        is_marked = number.name in [f"ablation-{score}" for score in head.get("significant", ())]
        yield {
            **row,
            "value": None if value is None else charts.rounded(value),
            "text": decimal(value, digits) + "*" * is_marked,
            "copies": copies(head, layer),
        }


def _sides(analysis: Analysis, models: Sequence[str]) -> tuple[list[str], list[int], list[int]]:
    """The attentions and layers of the models, and all numbers of heads up to the largest."""
    entries = [
        layer
        for model in analysis["models"]
        if model["name"] in models
        for layer in model["attentions"]
        if layer["heads"]
    ]
    attentions = [one for one in ATTENTIONS if any(one == e["attention"] for e in entries)]
    heads = max((head["head"] for entry in entries for head in entry["heads"]), default=0)
    return attentions, sorted({entry["layer"] for entry in entries}), list(range(heads + 1))


def _chart(
    analysis: Analysis, models: Sequence[str], color: alt.Color, is_page: bool = False
) -> alt.FacetChart:
    """A panel for each attention of each model, all of the same size."""
    attentions, layers, heads = _sides(analysis, models)
    bands: dict[str, Any] = {"paddingInner": 0.05, "paddingOuter": 0}
    base = alt.Chart().encode(
        x=alt.X("head:O", scale=alt.Scale(domain=heads, **bands), axis=alt.Axis(labelAngle=0)),
        y=alt.Y("layer:O", scale=alt.Scale(domain=layers, **bands)),
    )
    if is_page:
        value = alt.Tooltip("value:Q", format=".4~g")
        base = base.encode(tooltip=["layer:O", "head:O", value, "roles:N"])
    ink = (
        alt.when("!isValid(datum.value)")
        .then(alt.value("gray"))
        .when("luminance(scale('color', datum.value)) < 0.179")
        .then(alt.value("white"))
        .otherwise(alt.value(_INK))
    )
    cells = base.mark_rect(aria=False).encode(color=color).transform_filter("isValid(datum.value)")
    numbers = base.mark_text(fontSize=11, aria=False).encode(text="text:N", color=ink)
    frames = base.mark_rect(filled=False, stroke=_INK, strokeWidth=2.5, aria=False)
    layers_ = [cells, numbers, frames.transform_filter("datum.copies")]
    if is_page:
        chosen = base.mark_rect(filled=False, stroke=charts.COLOURS[1], strokeWidth=3, aria=False)
        layers_.append(chosen.transform_filter("datum.key === chosen"))
    width, height = max(70, len(heads) * _HEAD), max(1, len(layers)) * _HEAD
    down, across = ("attention", attentions), ("model", list(models))
    if len(models) * (width + 20) > charts.WIDTH and len(attentions) < len(models):
        down, across = across, down
    panels = alt.layer(*layers_, data=alt.NamedData("rows")).properties(width=width, height=height)
    return panels.facet(
        row=alt.Row(f"{down[0]}:N", **charts.side(down[1], height, is_row=True)),
        column=alt.Column(f"{across[0]}:N", **charts.side(across[1], width)),
    )
