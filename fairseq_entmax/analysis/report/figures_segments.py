"""Attention maps whose neighbours of equal weight are one segment (Niculae and Blondel 2017)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fairseq_entmax.analysis.groups import decoded_groups
from fairseq_entmax.analysis.maps import LONGEST, decoded
from fairseq_entmax.analysis.report import charts
from fairseq_entmax.analysis.report.charts import Analysis, Figure, Panel, Row, alt
from fairseq_entmax.analysis.report.labels import in_places
from fairseq_entmax.attentions import ATTENTIONS, CROSS, ENCODER_SELF

CELL = 16  # pixels
# Of the groups of a row that are in several places, from the heaviest; then they begin anew
MARKS = ("circle", "triangle-up", "square", "diamond", "triangle-down")


class HeadMap(NamedTuple):
    """One head on one sentence; weights and groups are ``(queries, keys)``."""

    layer: int
    head: int
    weights: np.ndarray
    groups: np.ndarray

    @property
    def grouped(self) -> float:
        """The weight of a query in groups of two or more, mean over the queries."""
        return float(np.where(self.groups, self.weights, 0).sum(dtype=float)) / len(self.weights)


def attention_segments(analysis: Analysis) -> list[Figure]:
    """Of each attention the sentence, and of each model the head, with the most in groups."""
    figures = []
    for attention in ATTENTIONS:
        maps = [(entry, _best_heads(analysis, entry, attention)) for entry in analysis["maps"]]
        grouped = [(entry, heads) for entry, heads in maps if heads]
        if grouped:
            figures.append(_figure(attention, *max(grouped, key=_worth), analysis))
    return figures


def _best_heads(analysis: Analysis, entry: Row, attention: str) -> dict[str, HeadMap]:
    """By model, of the heads with groups the one with the most weight in them."""
    best = {}
    for name, layers in zip(charts.model_names(analysis), entry["models"], strict=True):
        maps = [
            HeadMap(one["layer"], head, *pair)
            for one in layers
            for groups in [decoded_groups(one) if one["attention"] == attention else None]
            if groups is not None
            for head, pair in enumerate(zip(decoded(one), groups, strict=True))
        ]
        grouped = [one for one in maps if one.groups.any()]
        if grouped:
            best[name] = max(grouped, key=lambda one: one.grouped)
    return best


def _worth(candidate: tuple[Row, dict[str, HeadMap]]) -> tuple[bool, float]:
    """Sentences that fit on a page first."""
    entry, heads = candidate
    is_short = max(len(entry["source"]), len(entry["queries"])) <= LONGEST
    return is_short, sum(head.grouped for head in heads.values())


def _figure(attention: str, entry: Row, heads: dict[str, HeadMap], analysis: Analysis) -> Figure:
    down = {ENCODER_SELF: "source", CROSS: "targets"}.get(attention, "queries")
    across = {ENCODER_SELF: "source", CROSS: "source"}.get(attention, "queries")
    queries, keys = entry[down], entry[across]
    which = ", ".join(f"{charts.head_name(h.layer, h.head)} of {name}" for name, h in heads.items())
    caption = (
        f"Attention of {which} in sentence {entry['sentence']}: the most weight on words of equal "
        f"weight. An outlined box is a run of neighbours with exactly equal weight; the same mark "
        f"in a row, equal weight apart; blank is exactly 0, or not seen (after Niculae and Blondel "
        f"2017, figure 1)."
    )
    rows = [
        {"model": name, "attention": attention, **row}
        for name, head in heads.items()
        for row in _segments(head, queries, keys)
    ]
    names = charts.model_names(analysis)
    size = (CELL * len(keys), CELL * len(queries))
    chart = _chart(rows, queries, keys)
    panels = charts.wrapped(chart, rows, caption, "model", names, size)
    # Shared axes would stand above the titles
    panels = panels.resolve_axis(x="independent", y="independent")
    return Figure(f"attention_segments-{attention}", f"Segments: {attention}", caption, panels)


def _segments(head: HeadMap, queries: list[str], keys: list[str]) -> Iterator[Row]:
    """A row for each run, and for each key alone that has a weight."""
    for query, (weights, groups) in enumerate(zip(head.weights, head.groups, strict=True)):
        is_joined = (groups[1:] == groups[:-1]) & (groups[1:] != 0)
        begins = np.flatnonzero(np.r_[True, ~is_joined])
        ends = np.r_[begins[1:], len(groups)]
        spans = [(int(a), int(b)) for a, b in zip(begins, ends, strict=True) if weights[a] > 0]
        numbers = [int(groups[a]) for a, _ in spans]
        apart = sorted({number for number in numbers if number and numbers.count(number) > 1})
        for (begin, end), number in zip(spans, numbers, strict=True):
            size = int((groups == number).sum()) if number else 1
            weight = float(weights[begin])
            yield {
                "query": queries[query],
                "words": " ".join(keys[begin:end]),
                "weight": charts.rounded(weight),
                "keys": size,
                "together": charts.rounded(size * weight),
                "from": begin,
                "to": end,
                "top": query,
                "bottom": query + 1,
                "x": (begin + end) / 2,
                "y": query + 0.5,
                "mark": apart.index(number) % len(MARKS) if number in apart else None,
            }


def _chart(rows: list[Row], queries: list[str], keys: list[str]) -> Panel:
    # The same in every layer: Vega-Lite makes one axis of them all
    across = _tokens(keys, orient="top", labelAngle=-90)
    down = _tokens(queries, is_falling=True)
    base = alt.Chart()
    boxes = base.encode(
        x=alt.X("from:Q", **across), x2="to:Q", y=alt.Y("top:Q", **down), y2="bottom:Q"
    )
    # Not linear, so that small weights are seen; as in the page's maps
    opacity = alt.FillOpacity(
        "weight:Q",
        scale=alt.Scale(type="sqrt", domain=[0, 1], range=[0.05, 1]),
        legend=None,
    )
    words = boxes.mark_rect(fill=charts.COLOURS[0], stroke="#999999", strokeWidth=0.5).encode(
        fillOpacity=opacity,
        tooltip=[
            alt.Tooltip("query:N"),
            alt.Tooltip("words:N"),
            alt.Tooltip("weight:Q", title="weight of each", format=".3f"),
            alt.Tooltip("keys:Q", title="keys of that weight"),
            alt.Tooltip("together:Q", title="together", format=".3f"),
        ],
    )
    outlines = boxes.mark_rect(filled=False, stroke=charts.COLOURS[1], strokeWidth=1.75)
    marks = base.mark_point(filled=True, size=36, opacity=1, color=charts.COLOURS[1]).encode(
        x=alt.X("x:Q", **across),
        y=alt.Y("y:Q", **down),
        shape=alt.Shape("mark:N", scale=charts.value_scale(range(len(MARKS)), MARKS), legend=None),
    )
    runs = "datum.to - datum.from > 1"
    return charts.layered(
        rows,
        words,
        outlines.transform_filter(runs),
        marks.transform_filter("isValid(datum.mark)"),
    )


def _tokens(tokens: list[str], is_falling: bool = False, **axis: Any) -> dict[str, Any]:
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
    return {"axis": labels, "scale": scale, "title": None}
