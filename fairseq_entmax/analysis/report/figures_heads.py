"""Figures of single heads: confidence, importance, offsets, dependencies (Voita et al. 2019)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fairseq_entmax.analysis.report import charts
from fairseq_entmax.analysis.report.charts import Analysis, Figure, Row, alt
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
            "the most relevant head is on top. The area of a square is the value, 1 fills a cell; "
            "the number is the head's (after Voita et al. 2019, figure 1 a and b)."
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
    # In the text's colour, which the page chooses: one that is read on a square and beside it
    numbers = base.mark_text(fontSize=10).encode(text="head:O")
    measures = list(_TITLES.values())
    size = (columns * _CELL, ranks * _CELL)
    chart = charts.layered(rows, squares, numbers)
    return charts.grid(chart, rows, description, ("measure", measures), ("model", names), size)


def dependency_accuracy(analysis: Analysis) -> list[Figure]:
    """The best head of each model for each relation and direction, and the baseline."""
    known = (analysis["annotations"] or {}).get("relations") or {}
    ordered = sorted(known.items(), key=lambda item: -item[1]["count"])
    relations = dict(ordered[:MOST_RELATIONS])
    rows = [
        row
        for relation in relations
        for direction in ("to_head", "to_dependent")
        for row in _best_heads(analysis, relation, direction)
    ]
    if not rows:
        return []
    left_out = len(known) - len(relations)
    caption = (
        "How often the best encoder-self head of each model looks at the head of a relation, or "
        "at the dependent; the bar is the accuracy of the most frequent relative position "
        "(after Voita et al. 2019, table 1)."
        + (f" The {len(relations)} most frequent relations are shown." if left_out else "")
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
        # Below each other: models that agree would hide each other
        yOffset=alt.YOffset("model:N", sort=list(names), scale=alt.Scale(paddingOuter=0.5)),
        color=charts.model_colour(names, charts.top_legend()),
        shape=charts.model_shape(names),
        tooltip=[
            "direction:N",
            *charts.head_tooltip(
                ("accuracy:Q", "accuracy", ".1%"), ("baseline:Q", "baseline", ".1%")
            ),
            alt.Tooltip("offset:Q", title="its relative position", format="+d"),
            alt.Tooltip("count:Q", title="relations of this kind"),
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
        if place["attention"] != ENCODER_SELF or not head["dependencies"]:
            continue
        accuracy = head["dependencies"].get(relation, {}).get(direction)
        if accuracy is None or known[direction]["baseline"] is None:
            continue
        if place["model"] not in best or accuracy > best[place["model"]][0]:
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
