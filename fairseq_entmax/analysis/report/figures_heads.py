"""Figures of single heads: confidence, importance, functions, dependencies (Voita et al. 2019)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from fairseq_entmax.analysis.report import charts
from fairseq_entmax.analysis.report.charts import Analysis, Figure, Row, alt
from fairseq_entmax.analysis.report.roles import functions
from fairseq_entmax.attentions import ATTENTIONS, ENCODER_SELF

MOST_RELATIONS = 12
_CELL = 26
_TITLES = {"relevance": "relevance (LRP)", "confidence": "confidence"}


def confidence_and_importance(analysis: Analysis) -> list[Figure]:
    """One figure for each attention whose heads have a relevance."""
    figures = []
    for attention in ATTENTIONS:
        rows = _ranked(analysis, attention)
        if not rows:
            continue
        caption = (
            f"Relevance (above) and confidence (below) of the {attention} heads; in each layer "
            "the most relevant head is on top. The area of a square is the value (1 fills a cell), "
            "and the number is that of the head (after Voita et al. 2019, figure 1 a and b)."
        )
        chart = _square_chart(rows, charts.model_names(analysis), caption)
        title = f"Importance and confidence: {attention}"
        figures.append(Figure(f"confidence_and_importance-{attention}", title, caption, chart))
    return figures


def _ranked(analysis: Analysis, attention: str) -> list[Row]:
    """A row for each head and measure, with the head's rank by relevance in its layer."""
    layers: dict[tuple[str, int], list[tuple[Row, dict[str, Any]]]] = {}
    for place, head in charts.heads_of(analysis):
        if place["attention"] == attention and head["relevance"] is not None:
            layers.setdefault((place["model"], place["layer"]), []).append((place, head))
    return [
        {**place, "rank": rank, "measure": title, "value": charts.rounded(head[measure])}
        for heads in layers.values()
        for rank, (place, head) in enumerate(sorted(heads, key=lambda h: -h[1]["relevance"]), 1)
        for measure, title in _TITLES.items()
        if head[measure] is not None
    ]


def _square_chart(rows: list[Row], names: Sequence[str], description: str) -> alt.FacetChart:
    columns = len({row["layer"] for row in rows})
    ranks = max(row["rank"] for row in rows)
    base = alt.Chart().encode(
        x=alt.X("layer:O", axis=alt.Axis(labelAngle=0, grid=False)),
        y=alt.Y("rank:O", title="rank by relevance", axis=alt.Axis(grid=False)),
        tooltip=charts.head_tooltip(("value:Q", "value", ".3f"), ("measure:N", "measure", "")),
    )
    squares = base.mark_square(filled=True, opacity=0.35).encode(
        color=charts.model_colour(names),
        size=alt.Size(
            "value:Q", scale=alt.Scale(domain=[0, 1], range=[0, (_CELL - 2) ** 2]), legend=None
        ),
    )
    # In the page's text colour, which is legible both on a square and beside it
    numbers = base.mark_text(fontSize=10).encode(text="head:O")
    measures = list(_TITLES.values())
    size = (columns * _CELL, ranks * _CELL)
    chart = charts.layered(rows, squares, numbers)
    return charts.grid(chart, rows, description, ("measure", measures), ("model", names), size)


def functions_by_model(analysis: Analysis) -> list[Figure]:
    """The encoder heads of each model by function, from models with many heads to few."""
    counts: Counter[tuple[str, str]] = Counter()
    for place, head in charts.heads_of(analysis):
        if place["attention"] == ENCODER_SELF:
            found = functions(head, analysis)
            kind = "several" if len(found) > 1 else next(iter(found), "other")
            counts[place["model"], kind] += 1
    if all(kind == "other" for _, kind in counts):
        return []
    rows = [{"model": name, "function": one, "heads": n} for (name, one), n in counts.items()]
    caption = (
        "Functions of the encoder-self heads that each model has: positional heads look at a "
        "neighbour, syntactic ones find a relation ten points more often than its most frequent "
        "position would, and others look at rare words (after Voita et al. 2019, figure 8)."
    )
    kinds = ("positional", "syntactic", "rare words", "several", "other")
    colours = charts.value_scale(kinds, (*charts.COLOURS[:4], "#999999"))
    most = alt.EncodingSortField("heads", op="sum", order="descending")
    bars = alt.Chart(alt.InlineData(values=rows), height=alt.Step(24), width=460).mark_bar()
    chart = bars.properties(description=caption).encode(
        x=alt.X("heads:Q", title="remaining heads", axis=alt.Axis(format="d", tickMinStep=1)),
        y=alt.Y("model:N", title=None, sort=most, axis=alt.Axis(labelLimit=260)),
        color=alt.Color("function:N", scale=colours, legend=charts.top_legend(5)),
        tooltip=["model:N", "function:N", "heads:Q"],
    )
    return [Figure("functions_by_model", "Functions of encoder heads", caption, chart)]


def _frequent(analysis: Analysis) -> tuple[dict[str, Row], str]:
    """The most frequent relations, and a sentence if there are others."""
    known = (analysis["annotations"] or {}).get("relations") or {}
    shown = dict(sorted(known.items(), key=lambda item: -item[1]["count"])[:MOST_RELATIONS])
    others = f" The {len(shown)} most frequent relations are shown."
    return shown, others * (len(known) > len(shown))


def dependency_offsets(analysis: Analysis) -> list[Figure]:
    """The positions of the dependents of each relation, relative to their heads."""
    relations, others = _frequent(analysis)
    rows: list[Row] = [
        {"relation": name, "offset": int(offset), "share": charts.rounded(share)}
        for name, known in relations.items()
        for offset, share in known.get("offsets", {}).items()
    ]
    if not rows:
        return []
    caption = (
        "How many words after its head the dependent of a relation stands: the share is how often an "
        f"attention head that always looks there is right (after Voita et al. 2019, figure 3).{others}"
    )
    axis = alt.Axis(labelAngle=0, labelOverlap=True, format="+d")
    bars = alt.Chart(alt.InlineData(values=rows)).mark_bar(color="gray")
    bars = bars.encode(
        x=alt.X("offset:O", axis=axis),
        y=alt.Y("share:Q", scale=charts.SHARE, axis=alt.Axis(format="%", tickCount=4)),
        tooltip=["relation:N", "offset:O", alt.Tooltip("share:Q", format=".1%")],
    )
    chart = charts.wrapped(bars, rows, caption, "relation", list(relations), (170, 90))
    return [Figure("dependency_offsets", "Positions of dependents", caption, chart)]


def dependency_accuracy(analysis: Analysis) -> list[Figure]:
    """The best head of each model for each relation and direction, and the baseline."""
    relations, others = _frequent(analysis)
    rows = [
        row
        for relation in relations
        for direction in ("to_head", "to_dependent")
        for row in _best_heads(analysis, relation, direction)
    ]
    if not rows:
        return []
    caption = (
        "How often the best encoder-self head of each model looks at the head of a relation, or "
        "at the dependent; the bar is the accuracy of the most frequent relative position "
        f"(after Voita et al. 2019, table 1).{others}"
    )
    names = charts.model_names(analysis)
    order = list(dict.fromkeys(row["direction"] for row in rows))
    row_height = max(22, 9 * len(names) + 8)
    y = alt.Y("direction:N", title=None, sort=order, axis=alt.Axis(labelLimit=260, grid=True))
    baseline = alt.Chart().mark_bar(opacity=0.35, color="gray", size=row_height - 8)
    baseline = baseline.encode(y=y, x=alt.X("baseline:Q", stack=None, title="accuracy"))
    baseline = baseline.transform_aggregate(baseline="max(baseline)", groupby=["direction"])
    points = alt.Chart().mark_point(filled=True, size=50, opacity=1)
    points = points.encode(
        x=alt.X("accuracy:Q", scale=charts.SHARE, axis=alt.Axis(format="%", tickCount=5)),
        y=y,
        # One below the other, because models that agree would hide each other
        yOffset=alt.YOffset("model:N", sort=list(names), scale=alt.Scale(paddingOuter=0.5)),
        color=charts.model_colour(names, charts.top_legend()),
        shape=charts.model_shape(names),
        tooltip=[
            "direction:N",
            *charts.head_tooltip(
                ("accuracy:Q", "accuracy", ".1%"), ("baseline:Q", "baseline", ".1%")
            ),
            alt.Tooltip("offset:Q", title="most frequent position", format="+d"),
            alt.Tooltip("count:Q", title="number of relations"),
        ],
    )
    chart = charts.layered(rows, baseline, points).properties(
        width=460, height=row_height * len(order), description=caption
    )
    return [Figure("dependency_accuracy", "Dependency relations", caption, chart)]


def _best_heads(analysis: Analysis, relation: str, direction: str) -> list[Row]:
    known = analysis["annotations"]["relations"][relation]
    best: dict[str, tuple[float, Row]] = {}
    for place, head in charts.heads_of(analysis):
        if place["attention"] != ENCODER_SELF:
            continue
        accuracy = (head["dependencies"] or {}).get(relation, {}).get(direction)
        if accuracy is not None and accuracy > best.get(place["model"], (-1.0, place))[0]:
            best[place["model"]] = accuracy, place
    words = f"{relation} → head" if direction == "to_head" else f"head → {relation}"
    return [
        {
            **place,
            "direction": words,
            "accuracy": charts.rounded(accuracy),
            "baseline": charts.rounded(known[direction]["baseline"]),
            "offset": known[direction]["offset"],
            "count": known["count"],
        }
        for accuracy, place in best.values()
    ]
