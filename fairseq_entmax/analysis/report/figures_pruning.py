"""BLEU, and heads by attention and layer, by heads left (Voita et al. 2019, figures 7 to 10)."""

from __future__ import annotations

import csv
import os
from typing import Any

from fairseq_entmax.analysis.report import charts
from fairseq_entmax.analysis.report.charts import Figure, Row, alt
from fairseq_entmax.attentions import ATTENTIONS, ENCODER_SELF
from fairseq_entmax.summaries.generated import read_lines

ENCODER = "encoder pruned, decoder frozen"
ALL = "all three attentions pruned"
KINDS = ("baseline", "continued", "pruned", "scratch")


def bleu_by_heads(pruning: list[dict[str, Any]]) -> list[Figure]:
    """BLEU against heads left: a panel for pruned encoders, and one for all attentions pruned."""
    rows = [row for panel in (ENCODER, ALL) for row in _panel(pruning, panel)]
    if not rows:
        return []
    mappings = list(dict.fromkeys(row["mapping"] for row in rows))
    caption = (
        "BLEU against the number of remaining heads, for pruned models, models with the same heads "
        "trained from scratch, the baseline, and the baseline trained further without pruning (after "
        "Voita et al. 2019, figure 7). The BLEU axis does not begin at 0."
    )
    base = alt.Chart().encode(
        x=alt.X(
            "heads:Q",
            title="remaining heads",
            # Room for the marks at both ends
            scale=alt.Scale(zero=True, nice=False, padding=12),
            axis=alt.Axis(tickCount=5),
        ),
        y=alt.Y("BLEU:Q", scale=alt.Scale(zero=False, padding=10), axis=alt.Axis(tickCount=6)),
        color=alt.Color(
            "mapping:N",
            scale=charts.value_scale(mappings, charts.COLOURS),
            legend=charts.top_legend(),
        ),
    )
    dashes = alt.Scale(domain=["pruned", "scratch"], range=[[1, 0], [3, 3]])
    lines = base.mark_line(strokeWidth=1.5)
    lines = lines.encode(strokeDash=alt.StrokeDash("kind:N", scale=dashes, legend=None))
    lines = lines.transform_filter("datum.kind == 'pruned' || datum.kind == 'scratch'")
    points = base.mark_point(filled=True, size=80, opacity=1).encode(
        shape=alt.Shape(
            "kind:N",
            scale=charts.value_scale(KINDS, charts.SHAPES),
            # Visible on white and on black
            legend=charts.top_legend(
                title="model", symbolFillColor="gray", symbolStrokeColor="gray"
            ),
        ),
        tooltip=["mapping:N", "model:N", "heads:Q", "layers:N", "BLEU:Q", "parameters:Q"],
    )
    panels = charts.wrapped(
        charts.layered(rows, lines, points), rows, caption, "panel", (ENCODER, ALL)
    )
    panels = panels.resolve_scale(x="independent")
    return [Figure("bleu_by_heads", "BLEU by remaining heads", caption, panels)]


def _panel(pruning: list[dict[str, Any]], panel: str) -> list[Row]:
    """The rows of one panel; the unpruned models are in both. No rows if nothing was pruned."""
    counted = (ENCODER_SELF,) if panel == ENCODER else ATTENTIONS
    rows = []
    for row in pruning:
        kind = row["model"].rsplit("-", 1)[-1]
        is_pruned = kind in ("pruned", "scratch")
        if is_pruned and row["model"].startswith("encoder") != (panel == ENCODER):
            continue
        rows.append(
            {
                **{"panel": panel, "mapping": row["mapping"], "model": row["model"], "kind": kind},
                "heads": sum(sum(row[name]) for name in counted),
                "layers": "; ".join(",".join(map(str, row[name])) for name in ATTENTIONS),
                **{name: row[name] for name in ("BLEU", "parameters")},
            }
        )
    return rows if any(row["kind"] in ("pruned", "scratch") for row in rows) else []


def remaining_heads(pruning: list[dict[str, Any]]) -> list[Figure]:
    """The heads left in each attention, and in each of its layers, against those left in all."""
    rows: list[Row] = [
        {
            "mapping": row["mapping"],
            "model": row["model"],
            "all": sum(sum(row[a]) for a in ATTENTIONS),
        }
        | {"attention": attention, "layer": layer, "left": remaining}
        for row in pruning
        if row["model"].endswith(("baseline", "pruned")) and not row["model"].startswith("encoder")
        for attention in ATTENTIONS
        for layer, remaining in enumerate(row[attention])
    ]
    if all(row["model"] == "baseline" for row in rows):
        return []
    mappings = "mapping", list(dict.fromkeys(row["mapping"] for row in rows))
    attentions, layers = ("attention", ATTENTIONS), ("layer", sorted({r["layer"] for r in rows}))
    figures = []
    for (what, names), number in ((attentions, 9), (layers, 10)):
        caption = f"Remaining heads of each {what} (after Voita et al. 2019, figure {number})."
        colours = charts.value_scale(names, charts.COLOURS)
        lines = alt.Chart(alt.InlineData(values=rows)).mark_line(point=True)
        lines = lines.encode(
            x=alt.X("all:Q", title="all remaining heads", axis=alt.Axis(tickCount=5)),
            y=alt.Y("sum(left):Q", title="remaining heads", axis=alt.Axis(tickCount=4, format="d")),
            color=alt.Color(f"{what}:N", scale=colours, legend=charts.top_legend(3)),
            tooltip=["mapping:N", "model:N", f"{what}:N", "sum(left):Q", "all:Q"],
        )
        panels = charts.wrapped(lines, rows, caption, *mappings)
        if what == "layer":
            panels = charts.grid(lines, rows, caption, attentions, mappings)
        figures.append(Figure(f"heads_by_{what}", f"Remaining heads by {what}", caption, panels))
    return figures


COLUMNS = ("mapping", "model", *ATTENTIONS, "BLEU", "parameters", "sentences/s", "speed")
_NUMBERS = {"BLEU": float, "parameters": int, "sentences/s": float, "speed": float}


def read_pruning(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the rows of a recipe's ``pruning.tsv``, with columns by name. The columns of attentions
    become lists of the heads left in each layer."""
    lines = list(read_lines(str(path)))
    if not lines or tuple(lines[0].split("\t")) != COLUMNS:
        raise ValueError(
            f"--pruning {path}: the first line does not name the columns {', '.join(COLUMNS)}; "
            "give the pruning.tsv that a translation recipe's prune.sh wrote"
        )
    rows = []
    for number, row in enumerate(csv.DictReader(lines, delimiter="\t"), 2):
        try:
            rows.append(_read(row))
        except (AttributeError, ValueError, TypeError) as error:
            raise ValueError(
                f"--pruning {path}, line {number}: {error}; run prune.sh again"
            ) from None
    return rows


def _read(row: dict[str, Any]) -> dict[str, Any]:
    for attention in ATTENTIONS:  # the sum, and the heads of each layer, such as 3 (2,1,0)
        heads = row[attention].partition("(")[2].removesuffix(")")
        row[attention] = list(map(int, heads.split(",")))
    return row | {column: kind(row[column]) for column, kind in _NUMBERS.items()}
