"""Figures of Baan et al. 2019: what parts of speech heads look at, and heads as matrices.

A figure has a panel for each model, so that those before and after pruning, or with and without
sparse attention, are read side by side in the same colours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from fairseq_entmax.analysis.measures.base import Number, declared
from fairseq_entmax.analysis.report import charts
from fairseq_entmax.analysis.report.ablation_table import Ablation
from fairseq_entmax.analysis.report.charts import Analysis, Figure, Row, alt
from fairseq_entmax.attentions import ATTENTIONS, CROSS, ENCODER_SELF

TOP = 3
LEVEL = 0.05
_CELL = 30
_RANKS = ("highest", "second", "third")
# Number of the analysis to what its figure is of, and the paper's panel
_MATRICES = {
    "pos-kl": ("pos_kl", "(a)"),
    "named-entity": ("named_entity", "(b)"),
    "relative-position": ("relative_position", "(c)"),
    "copy-agreement": ("copy_agreement", ""),
}
_SCORES = {
    "loss": ("loss", "nats a token of the reference"),
    "bleu": ("BLEU", "points, on generated text"),
    "rouge1": ("ROUGE-1", "points, on generated text"),
    "rouge2": ("ROUGE-2", "points, on generated text"),
    "rougeL": ("ROUGE-L", "points, on generated text"),
}
# On cells alone, whatever the page's colours: it is read on each of theirs
_INK = "#14161a"
_FEWER, _SAME, _MORE = "#0072B2", "#d9d9d9", "#D55E00"


def tag_distributions(analysis: Analysis) -> list[Figure]:
    """The parts of speech that the most syntactic heads of each model look at."""
    figures = []
    for attention in (ENCODER_SELF, CROSS):
        rows = [row for model in analysis["models"] for row in _tag_rows(model, attention)]
        known = (analysis["annotations"] or {}).get("part_of_speech")
        if not rows or not known:
            continue
        caption = (
            f"Parts of speech in the attention of the {TOP} {attention} heads of each model whose "
            "distribution differs most from that of the text, by Kullback-Leibler divergence; "
            "the strokes are the shares of the text (after Baan et al. 2019, figures 2 and 5). "
            f"{_heads_in_words(rows)}."
        )
        names = charts.model_names(analysis)
        chart = _tag_chart(rows, known)
        panels = charts.grid(chart, rows, caption, ("attention", ATTENTIONS), ("model", names))
        title = f"Parts of speech: {attention}"
        figures.append(Figure(f"pos_kl_tags-{attention}", title, caption, panels))
    return figures


def _tag_rows(model: dict[str, Any], attention: str) -> Iterator[Row]:
    heads = [
        (head["pos_kl"], entry["layer"], head["head"], head["pos_shares"])
        for entry in model["attentions"]
        for head in entry["heads"]
        if entry["attention"] == attention and head["pos_kl"] is not None and head["pos_shares"]
    ]
    heads.sort(key=lambda one: (-one[0], *one[1:3]))
    for rank, (divergence, layer, number, shares) in zip(_RANKS[:TOP], heads, strict=False):
        for tag, share in shares.items():
            yield {
                "model": model["name"],
                "attention": attention,
                "layer": layer,
                "head": number,
                "name": charts.head_name(layer, number),
                "rank": rank,
                "divergence": charts.rounded(divergence),
                "tag": tag,
                "share": charts.rounded(share or 0.0),
            }


def _heads_in_words(rows: Sequence[Row]) -> str:
    """Which heads they are, by model."""
    found: dict[str, dict[str, None]] = {}
    for row in rows:
        text = f"{row['layer']}.{row['head']} ({row['divergence']:.2f})"
        found.setdefault(row["model"], {})[text] = None
    return "; ".join(f"{model}: {', '.join(heads)}" for model, heads in found.items())


def _tag_chart(rows: list[Row], known: dict[str, float]) -> charts.Panel:
    order = sorted(known, key=lambda tag: -known[tag])
    ranks = charts.present(rows, "rank", _RANKS)
    for row in rows:
        row["text"] = charts.rounded(known.get(row["tag"], 0.0))
    # A tag that no head looks at and no text has would be an empty place
    x = alt.X("tag:N", sort=order, title=None, axis=alt.Axis(labelAngle=-60, grid=False))
    y = alt.Y("share:Q", title="share", axis=alt.Axis(format="%", tickCount=5))
    bars = alt.Chart().mark_bar()
    bars = bars.encode(
        x=x,
        xOffset=alt.XOffset("rank:N", sort=list(ranks)),
        y=y,
        color=alt.Color(
            "rank:N",
            scale=charts.value_scale(ranks, charts.COLOURS),
            title="divergence",
            legend=charts.top_legend(3),
        ),
        tooltip=charts.head_tooltip(
            ("tag:N", "part of speech", ""),
            ("share:Q", "share of the attention", ".1%"),
            ("text:Q", "share of the text", ".1%"),
            ("divergence:Q", "divergence", ".3f"),
        ),
    )
    strokes = alt.Chart().mark_tick(color="gray", thickness=2)
    strokes = strokes.encode(x=x, y=alt.Y("text:Q", title="share"))
    return charts.layered(rows, bars, strokes)


def head_matrices(analysis: Analysis) -> list[Figure]:
    """Layers by heads, coloured by what Baan et al. measure; copy heads have a frame."""
    numbers = {number.name: number for number in declared(analysis)}
    figures = []
    for attention in (ENCODER_SELF, CROSS):
        for name, (file, panel) in _MATRICES.items():
            number = numbers.get(name)
            rows = [] if number is None else list(_matrix_rows(analysis, attention, number))
            if number is None or not rows:
                continue
            after = f" (after Baan et al. 2019, figures 3, 4, 6 and 7 {panel})" if panel else ""
            caption = (
                f"{number.title} of each {attention} head: {number.meaning}{after}."
                f"{_of_copies(rows)}"
            )
            largest = max(row["value"] for row in rows)
            scale = alt.Scale(domain=[0, largest or 1], range=charts.ramp(9))
            chart = _matrix(rows, number.title, scale, ".2f", ".3f")
            panels = _panels(chart, rows, caption, charts.model_names(analysis))
            title = f"{number.title}: {attention}"
            figures.append(Figure(f"{file}_by_head-{attention}", title, caption, panels))
    return figures


def _matrix_rows(analysis: Analysis, attention: str, number: Number) -> Iterator[Row]:
    for place, head, layer in _heads(analysis):
        value = number.of(head, layer) if place["attention"] == attention else None
        if value is not None:
            yield {**place, "value": charts.rounded(value), "mark": ""}


def _heads(analysis: Analysis) -> Iterator[tuple[Row, dict[str, Any], dict[str, Any]]]:
    """As :func:`charts.heads_of`, with whether words are copied by it, and its layer."""
    layers = {
        (model["name"], entry["attention"], entry["layer"]): entry
        for model in analysis["models"]
        for entry in model["attentions"]
    }
    for place, head in charts.heads_of(analysis):
        layer = layers[place["model"], place["attention"], place["layer"]]
        yield {**place, "copies": head["head"] in layer.get("copy_heads", [])}, head, layer


def ablation_matrices(analysis: Analysis, ablations: Sequence[Ablation]) -> list[Figure]:
    """Layers by heads, coloured by what a score changes without each; a figure for each score."""
    places = {
        (place["model"], place["attention"], place["layer"], place["head"]): place
        for place, _, _ in _heads(analysis)
    }
    figures = []
    for score in dict.fromkeys(score for one in ablations for score in one.scores):
        for attention in ATTENTIONS:
            rows = [
                {
                    **places[(one.model, *head)],
                    "value": charts.rounded(numbers["change"]),
                    "mark": "*" if numbers["p_holm"] < LEVEL else "",
                    "p": charts.rounded(numbers["p"]),
                    "p_holm": charts.rounded(numbers["p_holm"]),
                }
                for one in ablations
                for head, numbers in one.scores.get(score, {}).items()
                if head.attention == attention and (one.model, *head) in places
            ]
            if rows:
                figures.append(_ablation_figure(analysis, score, attention, rows))
    return figures


def _ablation_figure(analysis: Analysis, score: str, attention: str, rows: list[Row]) -> Figure:
    title, unit = _SCORES.get(score, (score, "as ablate scores it"))
    caption = (
        f"What {title} changes without each {attention} head alone ({unit}). An asterisk: "
        f"significant, p below {LEVEL} after Holm's correction for the number of heads (after "
        f"Baan et al. 2019, figures 3, 4, 6 and 7 (d)).{_of_copies(rows)}"
    )
    size = max(abs(row["value"]) for row in rows) or 1
    scale = alt.Scale(domain=[-size, 0, size], range=[_FEWER, _SAME, _MORE])
    more = [("p:Q", "p", ".3f"), ("p_holm:Q", "p (Holm)", ".3f")]
    chart = _matrix(rows, f"change of {title}", scale, "+.2f", "+.4f", more)
    panels = _panels(chart, rows, caption, charts.model_names(analysis))
    name = f"ablation_{''.join(c if c.isalnum() else '_' for c in score)}_by_head-{attention}"
    return Figure(name, f"Without each head: {title}, {attention}", caption, panels)


def _of_copies(rows: Sequence[Row]) -> str:
    return " Words are copied by the heads in a frame." * any(row["copies"] for row in rows)


def _matrix(
    rows: list[Row],
    title: str,
    scale: alt.Scale,
    short: str,
    whole: str,
    more: Sequence[tuple[str, str, str]] = (),
) -> charts.Panel:
    base = alt.Chart().encode(
        x=alt.X("head:O", axis=alt.Axis(labelAngle=0, grid=False)),
        y=alt.Y("layer:O", axis=alt.Axis(grid=False)),
    )
    cells = base.mark_rect().encode(
        color=alt.Color("value:Q", scale=scale, title=title, legend=charts.top_legend()),
        tooltip=charts.head_tooltip(("value:Q", title, whole), *more),
    )
    numbers = base.mark_text(fontSize=9, color=_INK).encode(text=alt.Text("value:Q", format=short))
    marks = base.mark_text(fontSize=15, color=_INK, dy=-5, dx=9).encode(text="mark:N")
    frames = base.mark_rect(filled=False, stroke=_INK, strokeWidth=2.5)
    frames = frames.transform_filter("datum.copies")
    return charts.layered(rows, cells, numbers, marks, frames)


def _panels(
    chart: charts.Panel, rows: Sequence[Row], caption: str, names: Sequence[str]
) -> alt.FacetChart:
    heads, layers = (1 + max(row[key] for row in rows) for key in ("head", "layer"))
    size = (max(90, heads * _CELL), layers * _CELL)
    return charts.grid(chart, rows, caption, ("attention", ATTENTIONS), ("model", names), size)
