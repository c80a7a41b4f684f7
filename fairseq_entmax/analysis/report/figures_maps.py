"""Attention maps as files: one head of each model on a sentence."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from fairseq_entmax.analysis.document.maps import decoded, decoded_groups
from fairseq_entmax.analysis.report import charts
from fairseq_entmax.analysis.report.charts import Analysis, Drawable, Figure, Row, alt
from fairseq_entmax.analysis.report.labels import in_places
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF

# In pixels: the side of a weight's cell, and the space for tokens beside a map
_WEIGHT, _TOKENS = 16, 80
_ZERO, _ZERO_LINE, _MARKED = "#ececea", "#8f8f8a", charts.COLOURS[1]
# Marks of a row's groups that are in several places; they repeat after the last
MARKS = ("circle", "triangle-up", "square", "diamond", "triangle-down")
# Diagonal lines through a square, which meet those of its neighbours, because Vega has no patterns
_HATCH = "M-1,1L1,-1M-1,0L0,-1M0,1L1,0"


class _Place(NamedTuple):
    """One attention layer of a model on a sentence, with the numbers of its heads."""

    model: str
    item: Row
    heads: list[int]

    def map_of(self, head: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The weights and, if any, the groups of a head, each ``(queries, keys)``."""
        place = self.heads.index(head)
        groups = decoded_groups(self.item)
        return decoded(self.item)[place], None if groups is None else groups[place]


def maps(analysis: Analysis) -> Iterator[Drawable]:
    """``map_SENTENCE_ATTENTION_LAYER_HEAD`` for all models that have the head, and for each alone.

    Usual is, for the first sentence, the most confident head of each attention."""
    suffixes = charts.model_suffixes(charts.model_names(analysis))
    for attention in ATTENTIONS:
        usual = _most_confident(analysis, attention)
        for number, entry in enumerate(analysis["maps"]):
            places = _places(analysis, entry, attention)
            # With the model's number if each model has its own text
            writer = entry.get("model")
            tag = f"{entry['sentence']}{'' if writer is None else f'by{writer}'}_{attention}"
            for layer, head in sorted({(p.item["layer"], h) for p in places for h in p.heads}):
                having = [p for p in places if p.item["layer"] == layer and head in p.heads]
                name, is_usual = f"map_{tag}_{layer}_{head}", not number and (layer, head) == usual
                yield Drawable(name, is_usual, partial(_map, entry, head, name, having))
                for suffix, model in suffixes:
                    alone = [place for place in having if place.model == model]
                    if alone:
                        draw = partial(_map, entry, head, name + suffix, alone)
                        yield Drawable(name + suffix, False, draw)


def _places(analysis: Analysis, entry: Row, attention: str) -> list[_Place]:
    found = []
    for model, items in zip(analysis["models"], entry["models"], strict=True):
        heads = {
            one["layer"]: [head["head"] for head in one["heads"]]
            for one in model["attentions"]
            if one["attention"] == attention
        }
        found += [
            _Place(model["name"], item, heads[item["layer"]])
            for item in sorted(items, key=lambda one: one["layer"])
            if item["attention"] == attention and heads[item["layer"]]
        ]
    return found


def _most_confident(analysis: Analysis, attention: str) -> tuple[int, int] | None:
    known: dict[tuple[int, int], list[float]] = {}
    for place, head in charts.heads_of(analysis):
        if place["attention"] == attention:
            values = known.setdefault((place["layer"], place["head"]), [])
            values.append(head["confidence"] or 0)
    return max(known, key=lambda key: (statistics.fmean(known[key]), key), default=None)


def _sides(entry: Row, attention: str) -> tuple[list[str], list[str]]:
    """The tokens of queries and of keys; in cross-attention, queries are the predicted tokens."""
    down = {ENCODER_SELF: "source", CROSS: "targets"}.get(attention, "queries")
    across = "queries" if attention == DECODER_SELF else "source"
    return entry[down], entry[across]


def _map(entry: Row, head: int, name: str, places: Sequence[_Place]) -> Figure:
    attention, layer = places[0].item["attention"], places[0].item["layer"]
    queries, keys = _sides(entry, attention)
    where = charts.head_name(layer, head)
    panels = [place.model for place in places] if len(places) > 1 else [where]
    rows = [
        {"panel": panel, **row}
        for panel, place in zip(panels, places, strict=True)
        for row in map_rows(*place.map_of(head), attention == DECODER_SELF)
    ]
    models = ", ".join(place.model for place in places)
    caption = (
        f"Attention of {where} ({attention}) of {models} on sentence {entry['sentence']}: rows "
        f"attend to columns. Hatched cells are exactly 0.{_of_groups(rows)}"
    )
    x = _axis(keys, orient="top", labelAngle=-90)
    y = _axis(queries, is_falling=True)
    chart = alt.layer(*_weights(x, y), data=alt.NamedData("rows"))
    width, height = _WEIGHT * len(keys), _WEIGHT * len(queries)
    made = charts.wrapped(chart, rows, caption, "panel", panels, (width, height), between=_TOKENS)
    # Each panel has its own axes, as the last line of panels may be shorter than those above
    zeros = alt.TitleParams(
        "hatched: exactly 0", anchor="start", fontSize=12, fontWeight="normal", offset=8
    )
    made = made.resolve_axis(x="independent", y="independent").properties(title=zeros)
    return Figure(name, f"Sentence {entry['sentence']}, {attention}, {where}", caption, made, rows)


def _of_groups(rows: Sequence[Row]) -> str:
    has_boxes = any(row["to"] - row["from"] > 1 for row in rows)
    has_marks = any(row["mark"] is not None for row in rows)
    boxes = " A box is a run of neighbours with equal weights." * has_boxes
    return boxes + " The same mark in a row: equal weights in separate places." * has_marks


def _axis(tokens: Sequence[str], is_falling: bool = False, **axis: Any) -> dict[str, Any]:
    """An axis with a token in the middle of each unit."""
    labels = alt.Axis(
        values=[place + 0.5 for place in range(len(tokens))],
        labelExpr=in_places(tokens),
        labelOverlap=False,
        labelLimit=110,
        grid=False,
        ticks=False,
        domain=False,
        **axis,
    )
    scale = alt.Scale(domain=[0, len(tokens)], nice=False, reverse=is_falling)
    return {"scale": scale, "axis": labels, "title": None}


def _weights(x: dict[str, Any], y: dict[str, Any]) -> list[alt.Chart]:
    """The layers: hatched exact zeros, weights, outlines of runs, marks of equal weights apart."""
    base = alt.Chart().transform_calculate(
        below="datum.query + 1", x="(datum.from + datum.to) / 2", y="datum.query + 0.5"
    )
    boxes = base.encode(x=alt.X("from:Q", **x), x2="to:Q", y=alt.Y("query:Q", **y), y2="below:Q")
    points = base.encode(x=alt.X("x:Q", **x), y=alt.Y("y:Q", **y))
    colour = alt.Color(
        "weight:Q",
        # Not linear, so that small weights are visible, as in the page's maps
        scale=alt.Scale(type="sqrt", domain=[0, 1]),
        legend=alt.Legend(
            title="weight", orient="top", values=[0.01, 0.25, 1], format=".2~f", gradientLength=120
        ),
    )
    shape = alt.Shape("mark:N", scale=charts.value_scale(range(len(MARKS)), MARKS), legend=None)
    line: dict[str, Any] = {"filled": False, "aria": False}
    hatch: dict[str, Any] = {"shape": _HATCH, "size": _WEIGHT**2, "stroke": _ZERO_LINE}
    mark: dict[str, Any] = {"size": 40, "color": _MARKED, "stroke": "white", "strokeWidth": 0.75}
    is_run = "datum.weight > 0 && datum.to - datum.from > 1"
    is_zero = "datum.weight === 0"
    return [
        boxes.mark_rect(fill=_ZERO, aria=False).transform_filter(is_zero),
        points.mark_point(opacity=1, strokeWidth=0.6, **line, **hatch).transform_filter(is_zero),
        boxes.mark_rect(aria=False).encode(color=colour).transform_filter("datum.weight > 0"),
        boxes.mark_rect(stroke=_MARKED, strokeWidth=1.75, **line).transform_filter(is_run),
        points.mark_point(filled=True, opacity=1, aria=False, **mark)
        .encode(shape=shape)
        .transform_filter("isValid(datum.mark)"),
    ]


def map_rows(weights: np.ndarray, groups: np.ndarray | None, is_causal: bool) -> Iterator[Row]:
    """A row for each run of neighbours of equal weight, each other key, and each exact zero.

    ``weights`` and, if the mapping makes groups, their numbers ``groups`` are ``(queries, keys)``.
    In causal attention, keys behind the query have no rows."""
    numbers = np.zeros(weights.shape, int) if groups is None else groups.astype(int)
    for query, (row, members) in enumerate(zip(weights, numbers, strict=True)):
        seen = query + 1 if is_causal else len(row)
        joined = (members[1:] == members[:-1]) & (members[1:] != 0)
        begins = [0, *(np.flatnonzero(~joined) + 1).tolist()]
        spans = list(zip(begins, [*begins[1:], len(row)], strict=True))
        firsts = [int(members[begin]) for begin, _ in spans if row[begin] > 0]
        apart = sorted({number for number in firsts if number and firsts.count(number) > 1})
        for begin, end in spans:
            if begin >= seen:
                continue
            number = int(members[begin])
            yield {
                "query": query,
                "from": begin,
                "to": end,
                "weight": charts.rounded(float(row[begin])),
                "mark": apart.index(number) % len(MARKS) if number in apart else None,
            }
