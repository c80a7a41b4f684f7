"""Figures of what heads learn, such as α (after Correia et al. 2019, figures 2 and 3)."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from fairseq_entmax.analysis.document.summary import learned_values
from fairseq_entmax.analysis.measures.base import Number
from fairseq_entmax.analysis.measures.head_values import head_value
from fairseq_entmax.analysis.report import charts
from fairseq_entmax.analysis.report.charts import Analysis, Figure, Row, alt
from fairseq_entmax.attentions import ATTENTIONS

MOST_POINTS = 80
BINS = 20
# Colours of layers: from blue to orange, which everyone can tell apart, by way of violet and
# magenta. Both ends are visible on white and on black
_RAMP = ((0x64, 0x8F, 0xFF), (0x78, 0x5E, 0xF0), (0xDC, 0x26, 0x7F), (0xFE, 0x61, 0x00))


def trajectories(analysis: Analysis) -> list[Figure]:
    """One figure for each value that training recorded, and each model with such a record."""
    figures = []
    for name in dict.fromkeys(name for model in analysis["models"] for name in model["records"]):
        number = head_value(name)
        models = [model for model in analysis["models"] if name in model["records"]]
        suffixes = charts.model_suffixes([one["name"] for one in models]) or [("", "")]
        for model, (suffix, shown) in zip(models, suffixes, strict=True):
            rows = _rows(model, name)
            if not rows:
                continue
            caption = (
                f"{number.title} of every head of {model['name']} during training, one line per "
                f"head; {_words(number)} (after Correia et al. 2019, figure 2)."
            )
            title = f"{number.title} during training" + f": {shown}" * bool(shown)
            chart = _trajectory_chart(rows, number, caption)
            figures.append(Figure(f"{name}_trajectories{suffix}", title, caption, chart))
    return figures


def _rows(model: dict[str, Any], name: str) -> list[Row]:
    """A row for each head whose value changes: its name, and its values, which the chart flattens."""
    record = model["records"][name]
    step = -(-len(record) // MOST_POINTS)
    # Thinned from the end, so that the model's own value, the last, is kept
    course = record[::-1][::step][::-1]
    if course[0] is not record[0]:
        course = [record[0], *course]
    rows = []
    for attention, layers in course[-1]["values"].items():
        for layer, last in layers.items():
            for head, final in enumerate(last):
                values = [(one["update"], one["values"][attention][layer][head]) for one in course]
                known = [(update, value) for update, value in values if value is not None]
                is_fixed = len(known) > 1 and len({value for _, value in known}) == 1
                if final is None or is_fixed:
                    continue
                shared = len(last) == 1
                rows.append(
                    {
                        "attention": attention,
                        "layer": int(layer),
                        "name": f"layer {layer}" if shared else charts.head_name(int(layer), head),
                        "final": charts.rounded(final),
                        "update": [update for update, _ in known],
                        "value": [charts.rounded(value) for _, value in known],
                    }
                )
    return rows


def _trajectory_chart(rows: list[Row], number: Number, description: str) -> alt.FacetChart:
    layers = sorted({row["layer"] for row in rows})
    by_layer = alt.selection_point(name="layer", fields=["layer"], bind="legend")
    pointed = alt.selection_point(
        name="pointed", fields=["name", "attention"], on="pointerover", empty=False
    )
    legend = charts.top_legend(columns=6, symbolStrokeWidth=3)
    colours = alt.Scale(domain=layers, range=ramp(len(layers)))
    dashes = charts.value_scale(layers, charts.DASHES)
    base = alt.Chart().encode(
        x=alt.X("update:Q", title="updates", axis=alt.Axis(tickCount=4, format="~s")),
        y=alt.Y("value:Q", title=number.title, scale=_scale(number.range)),
        detail="name:N",
    )
    lines = base.mark_line().encode(
        color=alt.Color("layer:O", scale=colours, legend=legend),
        strokeDash=alt.StrokeDash("layer:O", scale=dashes, legend=legend),
        opacity=alt.condition(by_layer, alt.value(0.75), alt.value(0.08)),
        strokeWidth=alt.condition(pointed, alt.value(4), alt.value(1.3)),
    )
    # A line is too thin to point at. Clipped, because an overhang would move the panel's title
    targets = base.mark_line(strokeWidth=9, opacity=0.001, clip=True).encode(
        tooltip=[
            alt.Tooltip("attention:N"),
            alt.Tooltip("name:N", title="head"),
            alt.Tooltip("final:Q", title=f"final {number.title}", format=".3f"),
        ]
    )
    chart = charts.layered(rows, lines.add_params(by_layer), targets.add_params(pointed))
    panels = charts.wrapped(chart, rows, description)
    panels.transform = [alt.FlattenTransform(flatten=["update", "value"])]
    return panels


def ramp(number: int) -> list[str]:
    """Return ``number`` colours, evenly spaced from first to last."""
    places = np.linspace(0, len(_RAMP) - 1, number)
    channels = [np.interp(places, range(len(_RAMP)), one) for one in zip(*_RAMP, strict=True)]
    colours = zip(*channels, strict=True)
    return ["#" + "".join(f"{round(one):02X}" for one in colour) for colour in colours]


def _words(number: Number) -> str:
    """What the values mean: the meaning behind its colon, if it has one."""
    return number.meaning.rpartition(": ")[2]


def _scale(ends: tuple[float, float] | None) -> alt.Scale:
    return alt.Scale(domain=list(ends)) if ends else alt.Scale(zero=False)


def histograms(analysis: Analysis) -> list[Figure]:
    """A histogram of the heads for each learned value, in twentieths of its range."""
    values: dict[str, list[tuple[str, str, float]]] = {}
    for model in analysis["models"]:
        for entry in model["attentions"]:
            for name in entry["learned"]:
                values.setdefault(name, []).extend(
                    (model["name"], entry["attention"], value)
                    for head, value in zip(entry["heads"], learned_values(entry, name), strict=True)
                    if value is not None and head["gate"] != 0
                )
    return [
        _histogram(analysis, head_value(name), known) for name, known in values.items() if known
    ]


def _histogram(analysis: Analysis, number: Number, values: list[tuple[str, str, float]]) -> Figure:
    """The histogram of values, which are given with their model and attention."""
    known = [value for _, _, value in values]
    low, high = number.range or (min(known), max(known))
    width = (high - low or 1) / BINS
    # A value on the border of two bins goes into the upper one, despite rounding errors
    bins: Counter[tuple[str, str, int]] = Counter(
        (model, attention, min(int((value - low) / width + 1e-9), BINS - 1))
        for model, attention, value in values
    )
    rows = [
        {
            "model": model,
            "attention": attention,
            "from": charts.rounded(low + bin_ * width),
            "to": charts.rounded(low + (bin_ + 1) * width),
            "heads": count,
        }
        for (model, attention, bin_), count in sorted(bins.items())
    ]
    caption = (
        f"Number of heads of each attention by their learned {number.title}; {_words(number)} "
        "(after Correia et al. 2019, figure 3)."
    )
    names, most = charts.model_names(analysis), max(bins.values())
    # About five whole numbers: for few heads, Vega would also mark halves
    axis = alt.Axis(values=list(range(0, most + 1, -(-most // 5))), format="d")
    rows = charts.completed(rows, {"heads": 0}, ("model", names), ("attention", ATTENTIONS))
    chart = charts.binned_bars(
        rows,
        number.title,
        _scale(number.range),
        y=alt.Y("heads:Q", title="heads", axis=axis),
        color=charts.model_colour(names),
        tooltip=["model:N", "attention:N", "from:Q", "to:Q", "heads:Q"],
    )
    panels = charts.grid(chart, rows, caption, ("model", names), ("attention", ATTENTIONS))
    return Figure(f"{number.name}_histogram", f"Learned {number.title}", caption, panels)
