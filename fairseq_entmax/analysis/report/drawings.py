"""Overview grids and attention maps as Vega-Lite: one description for the page and for files.

A template is a specification with places to fill in, strings such as ``$rows``. The page's
script has the templates, too, and fills them with what it shows; nothing here needs the
plotting library.
"""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import Any

from fairseq_entmax.analysis.report.labels import LETTER, in_lines, in_places
from fairseq_entmax.attentions import ATTENTIONS

Spec = dict[str, Any]

# Pixels: what stands side by side on a page of text, a head of a grid, a weight of a map, and
# what the tokens beside a map take
WIDTH = 760
HEAD = 34
WEIGHT = 16
TOKENS = 80
# Of a weight in the maps of every head, which have no tokens
SMALL_WEIGHT = 5
# How high a row of panels is at least that has its title turned, and how long a title is that
# lies flat, in one line where it can
ROW, FLAT = 90, 200

# As on the page: from light, the smallest, to dark; numbers from this place on are white
RAMP = ("#f0e490", "#97c47e", "#4c9f8c", "#2a7a94", "#23558f", "#1d2f72")
LIGHT_INK_FROM = 0.58
_ZERO, _ZERO_LINE = "#ececea", "#8f8f8a"
_INK, _MARKED = "#14161a", "#D55E00"
MARKS = ("circle", "triangle-up", "square", "diamond", "triangle-down")
# Lines through a square from corner to corner, which meet those of its neighbours
_HATCH = "M-1,1L1,-1M-1,0L0,-1M0,1L1,0"

PAPER: Spec = {
    "background": "white",
    "font": "sans-serif",
    "view": {"stroke": "#999999"},
    "axis": {
        "labelFontSize": 12,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "gridColor": "#e4e4e4",
    },
    "header": {"labelFontSize": 13, "titleFontSize": 13},
    "legend": {
        "labelFontSize": 12,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "labelLimit": 300,
    },
}


def filled(template: Any, values: Dictionary[str, Any]) -> Any:
    """A template with its places filled in.

    Args:
        template: strings in it that are ``$`` and a name of ``values`` are places.
        values: what stands there, of any type.
    """
    if isinstance(template, dict):
        return {key: filled(value, values) for key, value in template.items()}
    if isinstance(template, list | tuple):
        return [filled(value, values) for value in template]
    if isinstance(template, str) and template.startswith("$"):
        return values.get(template[1:], template)
    return template


def header(names: Sequence[str], length: float, is_row: bool = False) -> Spec:
    """Of panels so long; no name is cut.

    Beside a row of panels it is turned, and lies flat where the row is not high enough for that.
    """
    is_flat = is_row and length < ROW
    # Placed by their bounds, those that begin at one place end at the panels
    flat = {"labelAngle": 0, "labelAlign": "left"} if is_flat else {}
    lines = in_lines(names, FLAT if is_flat else length)
    return {"labelExpr": lines, "labelLimit": 0, **flat}


def side_by_side(number: int, width: float, space: float = WIDTH) -> int:
    """How many of so many panels of a width stand in a line, the lines as even as can be."""
    most = max(1, int(space // width))
    return -(-number // -(-number // most))


def grid_of(analysis: dict[str, Any], models: Sequence[str]) -> Spec:
    """The :func:`grid_template` of some models of an analysis, by their names."""
    entries = [
        entry
        for model in analysis["models"]
        if model["name"] in models
        for entry in model["attentions"]
        if entry["heads"]
    ]
    attentions = [one for one in ATTENTIONS if any(one == e["attention"] for e in entries)]
    layers = sorted({entry["layer"] for entry in entries})
    heads = 1 + max((head["head"] for entry in entries for head in entry["heads"]), default=0)
    return grid_template(models, attentions, layers, heads)


def absent(rows: Sequence[Spec]) -> list[Spec]:
    """Rows of nothing for an attention that a model of a grid lacks.

    Vega-Lite fills the grid panel by panel: without, those behind would move up.
    """
    there = {(row["model"], row["attention"]) for row in rows}
    models, attentions = (dict.fromkeys(pair[side] for pair in sorted(there)) for side in (0, 1))
    nothing = {"value": None, "text": "", "copies": False}
    return [
        {**rows[0], **nothing, "model": model, "attention": attention}
        for model in models
        for attention in attentions
        if (model, attention) not in there
    ]


def for_page(analysis: dict[str, Any]) -> dict[str, Any]:
    """What the page's script draws grids and maps with."""
    return {
        "grid": grid_of(analysis, [model["name"] for model in analysis["models"]]),
        "map": map_template(),
        "everyHead": every_head_template(),
        "paper": PAPER,
        "lightInkFrom": LIGHT_INK_FROM,
        "letter": LETTER,
        "width": WIDTH,
        "tokens": TOKENS,
        "weight": WEIGHT,
        "smallWeight": SMALL_WEIGHT,
        "row": ROW,
        "flat": FLAT,
        "marks": len(MARKS),
    }


def grid_template(
    models: Sequence[str], attentions: Sequence[str], layers: Sequence[int], heads: int
) -> Spec:
    """Layers by heads, a panel for each attention of each model, all of one size.

    Models stand side by side; where that is wider than a page and the attentions are fewer,
    below each other. To fill in: ``rows`` with ``model``, ``attention``, ``layer``, ``head``,
    ``value``, ``text`` and ``copies``; ``title``, ``domain``, ``middle``, ``legend`` and
    ``description``.
    """
    width, height = max(70, heads * HEAD), len(layers) * HEAD
    down, across = ("attention", attentions), ("model", models)
    if len(models) * (width + 20) > WIDTH and len(attentions) < len(models):
        down, across = across, down
    x = {
        "field": "head",
        "type": "ordinal",
        "scale": {"domain": list(range(heads))},
        "axis": {"labelAngle": 0, "grid": False},
    }
    y = {
        "field": "layer",
        "type": "ordinal",
        "scale": {"domain": list(layers)},
        "axis": {"grid": False},
    }
    cells = {
        "mark": {"type": "rect", "stroke": "white", "strokeWidth": 1, "aria": False},
        "transform": [{"filter": "isValid(datum.value)"}],
        "encoding": {
            "color": {
                "field": "value",
                "type": "quantitative",
                "scale": {"domain": "$domain", "range": list(RAMP)},
                "legend": "$legend",
            }
        },
    }
    light = {"test": "isValid(datum.value) && datum.value >= datum.middle", "value": "white"}
    numbers = {
        "mark": {"type": "text", "fontSize": 11, "aria": False},
        "encoding": {
            "text": {"field": "text", "type": "nominal"},
            "color": {"condition": light, "value": _INK},
        },
    }
    frames = {
        "mark": {"type": "rect", "filled": False, "stroke": _INK, "strokeWidth": 2.5},
        "transform": [{"filter": "datum.copies"}],
    }
    return {
        "description": "$description",
        "data": {"values": "$rows"},
        "facet": {"row": _side(*down, height, is_row=True), "column": _side(*across, width)},
        "spec": {
            "width": width,
            "height": height,
            "transform": [{"calculate": "$middle", "as": "middle"}],
            "encoding": {"x": x, "y": y},
            "layer": [cells, numbers, frames],
        },
    }


def _side(field: str, values: Sequence[str], length: int, is_row: bool = False) -> Spec:
    names = list(values)
    return {
        "field": field,
        "type": "nominal",
        "title": None,
        "sort": names,
        "header": header(names, length, is_row),
    }


def map_template() -> Spec:
    """One head of each model on a sentence, side by side as far as a page is wide.

    To fill in: ``rows`` of runs of equal weight, with ``panel``, ``query``, ``from``, ``to``,
    ``weight`` and ``mark``; what :func:`map_values` gives.
    """
    facet = {
        "field": "panel",
        "type": "nominal",
        "title": None,
        "sort": "$panels",
        "header": {"labelExpr": "$lines", "labelLimit": 0},
    }
    return {
        "description": "$description",
        "title": _legend_of_zeros(),
        "data": {"values": "$rows"},
        "facet": facet,
        "columns": "$columns",
        # Each with its own tokens: the last line of panels may be shorter than those above
        "resolve": {"axis": {"x": "independent", "y": "independent"}},
        "spec": {
            "width": "$width",
            "height": "$height",
            "transform": [{"calculate": "datum.query + 1", "as": "below"}],
            "layer": _weights(_token_axis("across"), _token_axis("down"), WEIGHT),
        },
    }


def every_head_template() -> Spec:
    """Every head of each model on a sentence, in small, layers below each other.

    To fill in: as for :func:`map_template`; ``panel`` is the layer, of a model, with ``head``.
    """
    side = {"type": "nominal", "title": None, "header": {"labelLimit": 0}}
    no_axis = {"scale": {"domain": "$acrossDomain", "nice": False}, "axis": None}
    reverse = {"scale": {"domain": "$downDomain", "nice": False, "reverse": True}, "axis": None}
    lines = {"labelExpr": "$lines", "labelLimit": 0, "labelAngle": 0, "labelAlign": "left"}
    return {
        "description": "$description",
        "title": _legend_of_zeros(),
        "data": {"values": "$rows"},
        "spacing": 6,
        "facet": {
            "row": {**side, "field": "panel", "sort": "$panels", "header": lines},
            "column": {**side, "field": "head", "sort": "$heads"},
        },
        "spec": {
            "width": "$width",
            "height": "$height",
            "transform": [{"calculate": "datum.query + 1", "as": "below"}],
            "layer": _weights(no_axis, reverse, SMALL_WEIGHT)[:3],
        },
    }


def _legend_of_zeros() -> Spec:
    return {
        "text": "hatched: exactly 0",
        "anchor": "start",
        "fontSize": 12,
        "fontWeight": "normal",
        "offset": 8,
    }


def _weights(across: Spec, down: Spec, side: int) -> list[Spec]:
    """Layers: exact zeros, hatched, weights, outlines of runs, marks of what is equal apart.

    Vega has no patterns: the hatching is lines in each cell.
    """
    size = side**2
    x = {"field": "from", "type": "quantitative", "title": None, **across}
    y = {"field": "query", "type": "quantitative", "title": None, **down}
    box = {"x": x, "x2": {"field": "to"}, "y": y, "y2": {"field": "below"}}
    colour = {
        "field": "weight",
        "type": "quantitative",
        # Not linear, so that small weights are seen; as in the page's maps
        "scale": {"type": "sqrt", "domain": [0, 1], "range": list(RAMP)},
        "legend": {
            "title": "weight",
            "orient": "top",
            "values": [0.01, 0.25, 1],
            "format": ".2~f",
            "gradientLength": 120,
        },
    }
    middle = [
        {"calculate": "(datum.from + datum.to) / 2", "as": "x"},
        {"calculate": "datum.query + 0.5", "as": "y"},
    ]
    shape = {
        "field": "mark",
        "type": "nominal",
        "scale": {"domain": list(range(len(MARKS))), "range": list(MARKS)},
        "legend": None,
    }
    hatch = {"type": "point", "shape": _HATCH, "size": size, "stroke": _ZERO_LINE}
    return [
        {
            "mark": {"type": "rect", "fill": _ZERO, "aria": False},
            "transform": [{"filter": "datum.weight == 0"}],
            "encoding": box,
        },
        {
            "mark": {**hatch, "filled": False, "strokeWidth": 0.6, "opacity": 1, "aria": False},
            "transform": [{"filter": "datum.weight == 0"}, *middle],
            "encoding": {"x": {**x, "field": "x"}, "y": {**y, "field": "y"}},
        },
        {
            "mark": {"type": "rect", "aria": False},
            "transform": [{"filter": "datum.weight > 0"}],
            "encoding": {**box, "color": colour},
        },
        {
            "mark": {
                "type": "rect",
                "filled": False,
                "stroke": _MARKED,
                "strokeWidth": 1.75,
                "aria": False,
            },
            "transform": [{"filter": "datum.weight > 0 && datum.to - datum.from > 1"}],
            "encoding": box,
        },
        {
            "mark": {
                "type": "point",
                "filled": True,
                "size": 40,
                "aria": False,
                "opacity": 1,
                "color": _MARKED,
                "stroke": "white",
                "strokeWidth": 0.75,
            },
            "transform": [{"filter": "isValid(datum.mark)"}, *middle],
            "encoding": {"x": {**x, "field": "x"}, "y": {**y, "field": "y"}, "shape": shape},
        },
    ]


def _token_axis(side: str) -> Spec:
    """With a token in the middle of each unit."""
    turned = {"orient": "top", "labelAngle": -90} if side == "across" else {}
    return {
        "axis": {
            "values": f"${side}Values",
            "labelExpr": f"${side}Tokens",
            "labelOverlap": False,
            "labelLimit": 110,
            "grid": False,
            "ticks": False,
            "domain": False,
            **turned,
        },
        "scale": {"domain": f"${side}Domain", "nice": False, "reverse": side == "down"},
    }


def map_values(
    panels: Sequence[str], queries: Sequence[str], keys: Sequence[str], description: str
) -> dict[str, Any]:
    """What a map's template is filled with, but for its rows."""
    width, height = WEIGHT * len(keys), WEIGHT * len(queries)
    return {
        "description": description,
        "panels": list(panels),
        "lines": in_lines(panels, width),
        "columns": side_by_side(max(1, len(panels)), width + TOKENS),
        "width": width,
        "height": height,
        **_axis_values("across", keys),
        **_axis_values("down", queries),
    }


def _axis_values(side: str, tokens: Sequence[str]) -> dict[str, Any]:
    return {
        f"{side}Domain": [0, len(tokens)],
        f"{side}Values": [place + 0.5 for place in range(len(tokens))],
        f"{side}Tokens": in_places(tokens),
    }
