"""What the figures share: Altair, colours that everyone can tell apart, and panels."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from fairseq_entmax.analysis.document import rounded as rounded
from fairseq_entmax.analysis.report.labels import in_lines
from fairseq_entmax.attentions import ATTENTIONS

try:
    import altair as alt
    import vl_convert as vl_convert
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "a report needs altair and vl-convert-python: pip install 'fairseq-entmax[report]'",
        name=error.name,
    ) from error

Analysis = dict[str, Any]
Row = dict[str, Any]
# Altair's types allow layers of panels to be panels themselves
Panel: TypeAlias = alt.Chart | alt.LayerChart | alt.FacetChart

# In pixels: the width of a page, the least width of a panel, and the space between panels
WIDTH = 760
_NARROWEST, _BETWEEN = 120, 20
# If rows of panels are wider than this, rows and columns swap places
_WIDEST = 950
# Beside rows of panels lower than _LOW, titles are horizontal, at most FLAT pixels wide
_LOW, FLAT = 90, 200

# Okabe and Ito's colours for colour-blind readers. Those with a contrast of 3:1 to white and to a
# dark page come first; each goes with a shape and a dash
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
DASHES = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 4], [12, 3])
# For numbers in cells, from small to large; reversed on a dark page
HEAT = ("#f0e490", "#97c47e", "#4c9f8c", "#2a7a94", "#23558f", "#1d2f72")

_TEXT = {"labelFontSize": 12, "titleFontSize": 13, "titleFontWeight": "normal"}
PAPER: dict[str, Any] = {
    "background": "white",
    "font": "sans-serif",
    "view": {"stroke": "#999999"},
    "range": {"heatmap": list(HEAT)},
    "axis": {**_TEXT, "gridColor": "#e4e4e4"},
    "header": {"labelFontSize": 13, "titleFontSize": 13},
    "legend": {**_TEXT, "labelLimit": 300},
}


@dataclass(frozen=True)
class Figure:
    """A figure of the report; its name is used for files and links.

    ``rows``: the rows of the chart's data set ``rows``, if the chart itself does not hold them:
    Altair checks every row, which takes seconds for maps."""

    name: str
    title: str
    caption: str
    chart: Panel
    rows: list[Row] | None = None

    def for_page(self) -> dict[str, Any]:
        """The Vega-Lite specification without colours of text and lines, which the page adds."""
        spec: dict[str, Any] = self.chart.to_dict()
        # Altair's default sets only the size of panels, which all have their own here
        spec.pop("config", None)
        return spec if self.rows is None else {**spec, "datasets": {"rows": self.rows}}

    def for_paper(self) -> dict[str, Any]:
        """The specification with a white background."""
        return {**self.for_page(), "config": PAPER}


class Drawable(NamedTuple):
    """A figure that is not drawn yet; a usual one is drawn if no names are given."""

    name: str
    is_usual: bool
    draw: Callable[[], Figure]


def heads_of(analysis: Analysis) -> Iterator[tuple[Row, Row]]:
    """The place, ``{"model", "attention", "layer", "head", "name"}``, and the entry of each head
    whose gate is not closed."""
    for model in analysis["models"]:
        for entry in model["attentions"]:
            for head in (one for one in entry["heads"] if one["gate"] != 0):
                place = {key: entry[key] for key in ("attention", "layer")}
                name = head_name(entry["layer"], head["head"])
                yield {"model": model["name"], **place, "head": head["head"], "name": name}, head


def head_name(layer: int, head: int) -> str:
    return f"layer {layer}, head {head}"


def model_names(analysis: Analysis) -> list[str]:
    return [model["name"] for model in analysis["models"]]


def model_suffixes(names: Sequence[str]) -> list[tuple[str, str]]:
    """The suffix for files of one model alone, with the model; nothing for a single model."""
    if len(names) == 1:
        return []
    # A model's name may have characters that a file's may not
    parts = (re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-") or "model" for name in names)
    return [
        (f"-{place}-{part}", name)
        for place, (part, name) in enumerate(zip(parts, names, strict=True))
    ]


def value_scale(names: Sequence[Any], values: Sequence[Any]) -> alt.Scale:
    """A colour, shape or dash for each name, always the same one."""
    return alt.Scale(domain=list(names), range=[values[i % len(values)] for i in range(len(names))])


def top_legend(columns: int = 2, **options: Any) -> alt.Legend:
    """A legend above the panels. A phone has room for two names per line."""
    return alt.Legend(orient="top", columns=columns, **options)


def model_colour(names: Sequence[str], legend: alt.Legend | None = None) -> alt.Color:
    return alt.Color("model:N", scale=value_scale(names, COLOURS), title="model", legend=legend)


def model_shape(names: Sequence[str]) -> alt.Shape:
    scale = value_scale(names, SHAPES)
    return alt.Shape("model:N", scale=scale, title="model", legend=top_legend())


def head_tooltip(*measures: tuple[str, str, str]) -> list[alt.Tooltip]:
    """A tooltip with the place of a head and its measures, given as (field, title, format)."""
    return [
        alt.Tooltip("model:N"),
        alt.Tooltip("attention:N"),
        alt.Tooltip("name:N", title="head"),
        *(alt.Tooltip(field, title=title, format=form) for field, title, form in measures),
    ]


def present(rows: Sequence[Row], field: str, order: Sequence[str]) -> list[str]:
    """The values of a field that occur in the rows, in ``order``."""
    found = {row[field] for row in rows}
    return [value for value in order if value in found]


def wrapped(
    chart: Panel,
    rows: Sequence[Row],
    description: str,
    field: str = "attention",
    order: Sequence[str] = ATTENTIONS,
    size: tuple[int, int] | None = None,
    between: int = _BETWEEN,
) -> alt.FacetChart:
    """Panels side by side, one for each value of a field, in lines of nearly equal length."""
    shown = present(rows, field, order)
    most = max(1, WIDTH // ((size[0] if size else _NARROWEST) + between))
    columns = -(-len(shown) // -(-len(shown) // most))
    width, height = size or (_panel_width(columns), 200)
    panels = chart.properties(width=width, height=height)
    made = panels.facet(facet=alt.Facet(f"{field}:N", **side(shown, width)), columns=columns)
    if len(shown) % columns:
        # Shared axes would also appear below the empty places of the last line
        made = made.resolve_axis(x="independent", y="independent")
    return made.properties(description=description)


def grid(
    chart: Panel,
    rows: Sequence[Row],
    description: str,
    row: tuple[str, Sequence[str]],
    column: tuple[str, Sequence[str]],
    size: tuple[int, int] | None = None,
) -> alt.FacetChart:
    """Panels in rows and columns, each given as a field and its values in order. If too wide for a
    page, a single row is broken into lines, and rows swap with columns if that is narrower."""
    down, across = present(rows, *row), present(rows, *column)
    if len(across) * ((size[0] if size else _NARROWEST) + _BETWEEN) > _WIDEST:
        if len(down) == 1:
            return wrapped(chart, rows, description, *column, size or (_NARROWEST, 130))
        if len(down) < len(across):
            row, column, down, across = column, row, across, down
    width, height = size or (_panel_width(len(across)), 130)
    panels = chart.properties(width=width, height=height)
    return panels.facet(
        row=alt.Row(f"{row[0]}:N", **side(down, height, is_row=True)),
        column=alt.Column(f"{column[0]}:N", **side(across, width)),
    ).properties(description=description)


def _panel_width(columns: int) -> int:
    return min(420, max(_NARROWEST, 660 // columns - _BETWEEN))


def side(values: Sequence[str], length: int, is_row: bool = False) -> dict[str, Any]:
    """Titles of panels ``length`` long: lines wrap, uncut, and are horizontal beside low rows."""
    is_flat = is_row and length < _LOW
    # Titles are placed by their bounds, so left-aligned ones end at the panels
    flat: dict[str, Any] = {"labelAngle": 0, "labelAlign": "left"} if is_flat else {}
    lines = in_lines(values, FLAT if is_flat else length)
    header = alt.Header(labelExpr=lines, labelLimit=0, **flat)
    return {"title": None, "sort": list(values), "header": header}


def completed(rows: list[Row], nothing: Row, *sides: tuple[str, Sequence[Any]]) -> list[Row]:
    """Add an invisible row for each panel of a :func:`grid` that has no rows.

    Vega-Lite fills the grid panel by panel: otherwise, panels after a missing one would get the
    titles of others. ``nothing`` has the fields that make a copy of a row invisible."""
    fields = [field for field, _ in sides]
    there = {tuple(row[field] for field in fields) for row in rows}
    every = itertools.product(*(present(rows, field, order) for field, order in sides))
    missing = [places for places in every if places not in there]
    return rows + [{**rows[0], **nothing, **dict(zip(fields, p, strict=True))} for p in missing]


def binned_bars(rows: list[Row], title: str, scale: alt.Scale, **encodings: Any) -> alt.Chart:
    """Bars over bins, from rows with ``from`` and ``to``."""
    axis = alt.Axis(tickCount=5)
    x = alt.X("from:Q", bin="binned", title=title, scale=scale, axis=axis)
    bars = alt.Chart(alt.InlineData(values=rows)).mark_bar(binSpacing=1)
    return bars.encode(x=x, x2="to:Q", **encodings)


# The scale of an axis for shares
SHARE = alt.Scale(domain=[0, 1])


def layered(rows: list[Row], *charts: alt.Chart) -> Panel:
    """Charts on top of each other that share their rows."""
    return alt.layer(*charts, data=alt.InlineData(values=rows))
