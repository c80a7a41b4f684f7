"""Figures of density and diversity, layer by layer (Correia et al. 2019)."""

from __future__ import annotations

import operator

from fairseq_entmax.analysis.measures.base import declared
from fairseq_entmax.analysis.report import charts
from fairseq_entmax.analysis.report.charts import Analysis, Figure, Row, alt
from fairseq_entmax.attentions import ATTENTIONS


def sparse_models(analysis: Analysis) -> list[str]:
    """The models with a density other than 1 in some head, whatever their mappings are."""
    heads = charts.heads_of(analysis)
    return list(dict.fromkeys(place["model"] for place, head in heads if head["density"] != 1))


def density_distribution(analysis: Analysis) -> list[Figure]:
    """A histogram of density over all pairs of a head and a sentence."""
    names = sparse_models(analysis)
    sums: dict[tuple[str, str], list[int]] = {}
    for place, head in charts.heads_of(analysis):
        if place["model"] in names and head["density_histogram"]:
            counts = head["density_histogram"]
            known = sums.setdefault((place["model"], place["attention"]), [0] * len(counts))
            known[:] = map(operator.add, known, counts)
    rows = [
        {
            "model": model,
            "attention": attention,
            "from": charts.rounded(number / len(counts)),
            "to": charts.rounded((number + 1) / len(counts)),
            "count": count,
            "share": charts.rounded(count / sum(counts)),
        }
        for (model, attention), counts in sums.items()
        for number, count in enumerate(counts)
        if count
    ]
    if not rows:
        return []
    rows = charts.completed(
        rows, {"share": 0, "count": 0}, ("attention", ATTENTIONS), ("model", names)
    )
    caption = (
        "Share of attendable tokens with a weight above zero, over heads and sentences "
        f"(after Correia et al. 2019, figure 4).{_left_out(analysis, names)}"
    )
    chart = charts.binned_bars(
        rows,
        "density",
        charts.SHARE,
        y=alt.Y("share:Q", title="share", axis=alt.Axis(format="%", tickCount=4)),
        color=charts.model_colour(charts.model_names(analysis)),
        tooltip=[
            alt.Tooltip("model:N"),
            alt.Tooltip("attention:N"),
            alt.Tooltip("from:Q", title="density from"),
            alt.Tooltip("to:Q"),
            alt.Tooltip("share:Q", format=".1%"),
            alt.Tooltip("count:Q", title="heads × sentences"),
        ],
    )
    panels = charts.grid(chart, rows, caption, ("attention", ATTENTIONS), ("model", names))
    return [Figure("density_distribution", "Density per sentence", caption, panels)]


def density_by_layer(analysis: Analysis) -> list[Figure]:
    """The heads of each layer from sparse to dense; a line joins heads of the same rank."""
    names = sparse_models(analysis)
    layers: dict[tuple[str, str, int], list[Row]] = {}
    for place, head in charts.heads_of(analysis):
        if place["model"] in names and head["density"] is not None:
            key = (place["model"], place["attention"], place["layer"])
            values = {
                f"value_{name}": charts.rounded(value)
                for name, value in head["values"].items()
                if value is not None
            }
            row = {**place, "density": charts.rounded(head["density"]), **values}
            layers.setdefault(key, []).append(row)
    rows = [
        {**row, "rank": rank}
        for heads in layers.values()
        for rank, row in enumerate(sorted(heads, key=lambda row: row["density"]))
    ]
    if not rows:
        return []
    rows = charts.completed(rows, {"density": None}, ("attention", ATTENTIONS), ("model", names))
    caption = (
        "Mean density of the heads of each layer, sorted; a line joins the heads of the same "
        f"rank (after Correia et al. 2019, figure 5).{_left_out(analysis, names)}"
    )
    base = alt.Chart().encode(
        x=alt.X("layer:O", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("density:Q", scale=charts.SHARE, axis=alt.Axis(tickCount=3, format=".1f")),
        color=charts.model_colour(charts.model_names(analysis)),
    )
    # Values of the heads' mappings, such as alpha
    shown = [number for number in declared(analysis) if number.place[0] == "values"]
    lines = base.mark_line(strokeWidth=1, opacity=0.5).encode(detail="rank:O")
    points = base.mark_point(filled=True, size=28, opacity=0.9).encode(
        # With three digits, a value just below 1 would read 1
        tooltip=charts.head_tooltip(
            ("density:Q", "density", ".5~f"),
            *((f"value_{one.name}:Q", one.title, ".3f") for one in shown),
        )
    )
    chart = charts.layered(rows, lines, points)
    panels = charts.grid(chart, rows, caption, ("attention", ATTENTIONS), ("model", names))
    return [Figure("density_by_layer", "Density of heads by layer", caption, panels)]


def diversity_by_layer(analysis: Analysis) -> list[Figure]:
    """Jensen-Shannon divergence between the heads of a layer, with a line per model."""
    rows = [
        {
            **{"model": model["name"], "attention": entry["attention"], "layer": entry["layer"]},
            "place": place,
            "diversity": charts.rounded(entry["diversity"]),
        }
        for place, model in enumerate(analysis["models"])
        for entry in model["attentions"]
        if entry["diversity"] is not None
    ]
    if not rows:
        return []
    caption = (
        "Jensen-Shannon divergence between the heads of each layer: the higher, the more they "
        "look at different tokens (after Correia et al. 2019, figure 6)."
    )
    names = charts.model_names(analysis)
    base = alt.Chart().encode(
        x=alt.X("layer:O", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("diversity:Q", title="JS divergence", axis=alt.Axis(tickCount=5)),
        color=charts.model_colour(names, charts.top_legend()),
    )
    # By place, not name: else dashes would share the shapes' legend and dash the outlines there
    dashes = charts.value_scale(range(len(names)), charts.DASHES)
    dash = alt.StrokeDash("place:N", scale=dashes, legend=None)
    lines = base.mark_line().encode(strokeDash=dash)
    points = base.mark_point(filled=True, size=60, opacity=1).encode(
        shape=charts.model_shape(names),
        tooltip=["model:N", "attention:N", "layer:O", alt.Tooltip("diversity:Q", format=".3f")],
    )
    panels = charts.wrapped(charts.layered(rows, lines, points), rows, caption)
    return [Figure("diversity_by_layer", "Diversity of heads by layer", caption, panels)]


def _left_out(analysis: Analysis, shown: list[str]) -> str:
    is_whole = len(shown) == len(analysis["models"])
    return "" if is_whole else " Models whose density is 1 everywhere are left out."
