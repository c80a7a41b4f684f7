"""Figures of learned α: while the model trained, and at the end (Correia et al. 2019)."""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.report.charts import (
    DASHES,
    Analysis,
    Figure,
    Row,
    alt,
    file_name,
    grid,
    head_name,
    heads_of,
    model_colour,
    model_names,
    present,
    ramp,
    rounded,
    top_legend,
    value_scale,
    wrapped,
)
from fairseq_entmax.mappings.registry import parse_mapping

MOST_POINTS = 80
BIN = 0.05
ALPHA = alt.Scale(domain=[1, 2])


def alpha_trajectories(analysis: Analysis) -> list[Figure]:
    """One figure for each model with a record of its training."""
    models = [model for model in analysis["models"] if model["alpha_record"]]
    figures = []
    for place, model in enumerate(models):
        rows = _trajectories(model["alpha_record"])
        if not rows:
            continue
        alone = len(models) == 1
        name = "alpha_trajectories" + ("" if alone else f"-{place}-{file_name(model['name'])}")
        caption = (
            f"α of every head of {model['name']} while it trained, a line a head; 1 is softmax, "
            "2 is sparsemax (after Correia et al. 2019, figure 2)."
        )
        chart = _trajectory_chart(rows, caption)
        title = "α while training" + ("" if alone else f": {model['name']}")
        figures.append(Figure(name, title, caption, chart))
    return figures


def _trajectories(record: list[dict[str, Any]]) -> list[Row]:
    """A row for each head: its name and its values, which the chart takes apart."""
    step = -(-len(record) // MOST_POINTS)
    # Counted from the end: the last value is the model's own
    kept = record[::-1][::step][::-1]
    if kept[0] is not record[0]:
        kept = [record[0], *kept]
    rows = []
    for attention, layers in kept[-1]["alpha"].items():
        for layer, last in layers.items():
            values = [line["alpha"].get(attention, {}).get(layer, []) for line in kept]
            for head, final in enumerate(last):
                known = [
                    (line["update"], rounded(alpha[head]))
                    for line, alpha in zip(kept, values, strict=True)
                    if head < len(alpha)
                ]
                shared = len(last) == 1
                rows.append(
                    {
                        "attention": attention,
                        "layer": int(layer),
                        "name": f"layer {layer}" if shared else head_name(int(layer), head),
                        "final": rounded(final),
                        "update": [update for update, _ in known],
                        "alpha": [alpha for _, alpha in known],
                    }
                )
    return rows


def _trajectory_chart(rows: list[Row], description: str) -> alt.FacetChart:
    layers = sorted({row["layer"] for row in rows})
    by_layer = alt.selection_point(name="layer", fields=["layer"], bind="legend")
    pointed = alt.selection_point(
        name="pointed", fields=["name", "attention"], on="pointerover", empty=False
    )
    legend = top_legend(columns=6, symbolStrokeWidth=3)
    base = alt.Chart().encode(
        x=alt.X("update:Q", title="updates", axis=alt.Axis(tickCount=4, format="~s")),
        y=alt.Y("alpha:Q", title="α", scale=ALPHA),
        detail="name:N",
    )
    lines = base.mark_line().encode(
        color=alt.Color(
            "layer:O",
            scale=alt.Scale(domain=layers, range=ramp(len(layers))),
            legend=legend,
        ),
        strokeDash=alt.StrokeDash("layer:O", scale=value_scale(layers, DASHES), legend=legend),
        opacity=alt.condition(by_layer, alt.value(0.75), alt.value(0.08)),
        strokeWidth=alt.condition(pointed, alt.value(4), alt.value(1.3)),
    )
    # A line is too thin to point at
    targets = base.mark_line(strokeWidth=9, opacity=0.001).encode(
        tooltip=[
            alt.Tooltip("attention:N"),
            alt.Tooltip("name:N", title="head"),
            alt.Tooltip("final:Q", title="α at the end", format=".3f"),
        ]
    )
    chart = alt.layer(
        lines.add_params(by_layer), targets.add_params(pointed), data=alt.InlineData(values=rows)
    )
    panels = wrapped(chart, "attention", present(rows, "attention"), description)
    panels.transform = [alt.FlattenTransform(flatten=["update", "alpha"])]
    return panels


def alpha_histogram(analysis: Analysis) -> list[Figure]:
    """How many heads learned which α, in bins of 0.05."""
    learned = {
        (model["name"], entry["attention"], entry["layer"])
        for model in analysis["models"]
        for entry in model["attentions"]
        if learns_alpha(entry["mapping"])
    }
    bins: dict[tuple[str, str, int], int] = {}
    for place, head in heads_of(analysis):
        if (place["model"], place["attention"], place["layer"]) in learned:
            # A value on the border of two bins is in the upper one, whatever float makes of it
            number = min(int((head["alpha"] - 1) / BIN + 1e-9), round(1 / BIN) - 1)
            key = (place["model"], place["attention"], number)
            bins[key] = bins.get(key, 0) + 1
    if not bins:
        return []
    rows = [
        {
            "model": model,
            "attention": attention,
            "from": rounded(1 + number * BIN),
            "to": rounded(1 + (number + 1) * BIN),
            "heads": count,
        }
        for (model, attention, number), count in sorted(bins.items())
    ]
    caption = (
        "How many heads of each attention learned which α; 1 is softmax, 2 is sparsemax "
        "(after Correia et al. 2019, figure 3)."
    )
    names = model_names(analysis)
    chart = (
        alt.Chart(alt.InlineData(values=rows))
        .mark_bar(binSpacing=1)
        .encode(
            x=alt.X("from:Q", bin="binned", title="α", scale=ALPHA, axis=alt.Axis(tickCount=5)),
            x2="to:Q",
            y=alt.Y("heads:Q", title="heads", axis=alt.Axis(tickMinStep=1, tickCount=5)),
            color=model_colour(names),
            tooltip=["model:N", "attention:N", "from:Q", "to:Q", "heads:Q"],
        )
    )
    shown = present(rows, "attention")
    models = present(rows, "model", names)
    panels = grid(chart, ("model", models), ("attention", shown), caption)
    return [Figure("alpha_histogram", "Learned α", caption, panels)]


def learns_alpha(mapping: str | None) -> bool:
    """Whether heads with this mapping learn their α; None is the mapping of no heads."""
    if mapping is None:
        return False
    spec = parse_mapping(mapping)
    return spec.name == "entmax" and "alpha" not in spec.parameters
