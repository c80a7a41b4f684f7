"""Draws how the cost of attention on a CPU grows with length and density.

    python scripts/benchmarks/growth.py             # draws the numbers in docs/figures/growth.json
    python scripts/benchmarks/growth.py --run       # measures first: ten minutes

It measures as cpu_attention.py does: this package's alpha-entmax with a learned alpha, torch's
scaled_dot_product_attention, and softmax between two products, with all points of a figure in turns.
Each figure shows the forward pass, and forward and backward pass together, on logarithmic axes:

    growth_length.svg    64 to 4,096 keys, 4,096 tokens in all, scores of standard deviation 1.5
    growth_density.svg   1,024 keys: alpha 1.4 and scores of standard deviation 0.25 to 8, and for
                         this package also alpha 1.1 to 2 and scores of standard deviation 1.5

The file has all numbers and facts on the machine, so that figures can be redrawn without measuring.
Drawing needs the package's extra "report".
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from attention_inputs import INDEPENDENT, QUERIES, Case, drawn
from common import machine, machine_line, positive, write_json
from cpu_attention import BMM, HERE, PASSES, SDPA, measure, shown

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
# Everyone can tell the contenders' colours and shapes apart
LABELS = {
    HERE: "α-entmax here",
    SDPA: "softmax, torch's scaled_dot_product_attention",
    BMM: "softmax between two products",
}
# The label of rows with varying alpha and a fixed spread, in the figure of density
BY_ALPHA = "α-entmax here, by α: 1.1 to 2"
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7"]
# By the name of the figure, the title of the horizontal axis and its field
AXES = {
    "length": ("keys", "keys"),
    "density": ("density: keys with a weight, of all", "density"),
}
ALPHA, SPREAD = 1.4, 1.5
ALPHAS = [1.1, 1.2, 1.3, 1.5, 1.75, 2.0]


def planned(quick: bool) -> Iterator[tuple[str, str, tuple[int, int, int, int], float, float]]:
    """Yield figure, the quantity that varies, shape, spread and alpha."""
    tokens, keys, heads, size = (32, 16, 2, 8) if quick else (4096, 1024, 8, 64)
    one = (1, heads, keys, size)
    for length in (8, 16) if quick else (64, 128, 256, 512, 1024, 2048, 4096):
        shape = (tokens // length, heads, length, size)
        yield "length", "length", shape, SPREAD, ALPHA
    for spread in (0.5, 4.0) if quick else (0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 8.0):
        yield "density", "density", one, spread, ALPHA
    for alpha in ALPHAS[-1:] if quick else ALPHAS:
        yield "density", "alpha", one, SPREAD, alpha


def measured(queries: str, quick: bool, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """A row of :func:`cpu_attention.measure` for each planned point, with its figure."""
    rows = []
    for figure in AXES:
        places: list[dict[str, str]] = []
        points: list[tuple[int, Case]] = []
        for name, varied, shape, spread, alpha in planned(quick):
            if name == figure:
                places.append({"figure": figure, "varied": varied})
                points.append((1, drawn(shape, spread, queries, alpha)))
        found = measure(points, rounds, seconds)
        rows += [place | row for place, row in zip(places, found, strict=True)]
    return rows


def points(rows: list[dict[str, Any]], figure: str) -> list[dict[str, Any]]:
    """The points of a figure: one for each contender, pass and position on the axis."""
    return [
        {
            "x": row[AXES[figure][1]],
            "ms": round(row[f"{part}_ms"][name], 4),
            "pass": title,
            "attention": label,
        }
        for row in rows
        if row["figure"] == figure
        for part, title in PASSES.items()
        for name, label in ({HERE: BY_ALPHA} if row["varied"] == "alpha" else LABELS).items()
    ]


def draw(rows: list[dict[str, Any]], figure: str, target: Path) -> None:
    """Draw a panel for each pass, with a line for each contender."""
    import altair

    values = points(rows, figure)
    places = sorted({point["x"] for point in values})
    names = [*dict.fromkeys(point["attention"] for point in values)]
    x = altair.X("x:Q", title=AXES[figure][0]).scale(
        type="log", nice=False, domain=[places[0], places[-1]]
    )
    axis = {"format": "~g"} if figure == "density" else {"values": places}
    y = altair.Y("ms:Q", title="milliseconds").scale(type="log").axis(format="~g")
    legend = {"title": None, "orient": "bottom", "columns": 1, "labelLimit": 400}
    chart = (
        altair.Chart(altair.Data(values=values), width=270, height=200)
        .mark_line(point={"filled": True, "size": 45})
        .encode(
            x=x.axis(labelOverlap=True, **axis),
            y=y,
            color=altair.Color("attention:N", legend=altair.Legend(**legend)).scale(
                domain=names, range=COLOURS[: len(names)]
            ),
            # The same names in the same order, so that both share one legend
            shape=altair.Shape("attention:N", legend=altair.Legend(**legend)).scale(domain=names),
        )
        .facet(column=altair.Column("pass:N", title=None, sort=[*PASSES.values()]))
    )
    chart.save(str(target))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="first measure and write the numbers")
    parser.add_argument("--output", type=Path, default=FIGURES, metavar="DIR")
    parser.add_argument("--queries", choices=QUERIES, default=INDEPENDENT)
    parser.add_argument("--rounds", type=positive, default=9)
    parser.add_argument("--seconds", type=float, default=15.0, help="approximate limit for a point")
    parser.add_argument("--quick", action="store_true", help="use toy sizes, to try the command")
    options = parser.parse_args()
    file = options.output / "growth.json"
    if options.run:
        torch.set_num_threads(1)
        settings = {**machine(), "queries": options.queries, "alpha": ALPHA}
        rows = measured(options.queries, options.quick, options.rounds, options.seconds)
        write_json(file, settings, results=rows)
    if not file.is_file():
        parser.error(f"--output {options.output}: there is no growth.json: measure with --run")
    report = json.loads(file.read_text(encoding="utf-8"))
    for figure in AXES:
        draw(report["results"], figure, options.output / f"growth_{figure}.svg")
    print(f"{machine_line(report['settings'])}\n\n{shown(report['results'], [*LABELS])}")


if __name__ == "__main__":
    main()
