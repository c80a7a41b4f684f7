"""How the cost of attention on a CPU grows with length, density and threads, as figures.

    python scripts/benchmarks/growth.py             # draws what docs/figures/growth.json holds
    python scripts/benchmarks/growth.py --run       # measures first: ten minutes

What cpu_attention.py measures: alpha-entmax with a learned alpha here, torch's
scaled_dot_product_attention, and softmax between two products, all points of a figure in turns. Each
figure has the forward pass, and forward and backward pass together, on logarithmic axes:

    growth_length.png    64 to 4,096 keys, 4,096 tokens in all, scores of standard deviation 1.5
    growth_density.png   1,024 keys: alpha 1.4 and scores of standard deviation 0.25 to 8, and for
                         what is here also alpha 1.1 to 2 and scores of standard deviation 1.5
    growth_threads.png   8 heads of 1,024 keys, on 1 to all threads

The file holds all numbers and what they were measured on, so that figures can be drawn anew, in
other colours, without measuring. Drawing needs the package's extra "report".
"""

from __future__ import annotations

import argparse
import json
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from attention_inputs import INDEPENDENT, SMOOTH, drawn
from attention_tables import BMM, HERE, PASSES, SDPA
from common import machine, markdown, processors, said, write_json
from cpu_attention import LEAST_ROUNDS, Round, contenders, facts, one_round, summary

FIGURES = Path(__file__).parents[2] / "docs" / "figures"
LABELS = {
    HERE: "α-entmax here",
    SDPA: "softmax, torch's scaled_dot_product_attention",
    BMM: "softmax between two products",
}
# Of rows of the figure of density that have another alpha and one spread
BY_ALPHA = "α-entmax here, by α: 1.1 to 2"
# What stands on the horizontal axis, by the name of the figure
AXES = {"length": "keys", "density": "density: keys with a weight, of all", "threads": "threads"}
ALPHA, SPREAD = 1.4, 1.5
ALPHAS = [1.1, 1.2, 1.3, 1.5, 1.75, 2.0]
PNG_HEAD = b"\x89PNG\r\n\x1a\n"
Settings = list[dict[str, Any]]


def all_threads() -> list[int]:
    """1, 2, 4 and so on, and all there are."""
    number, powers = processors(), [1]
    while powers[-1] * 2 < number:
        powers.append(powers[-1] * 2)
    return sorted({*powers, number})


def planned(quick: bool) -> dict[str, Settings]:
    """The rows of each figure: shape, spread, threads, and alpha where that is varied."""
    tokens, keys, heads = (32, 16, 2) if quick else (4096, 1024, 8)
    lengths = [8, 16] if quick else [64, 128, 256, 512, 1024, 2048, 4096]
    spreads = [0.5, 4.0] if quick else [0.25, 0.5, 1.0, 1.5, 2.0, 4.0, 8.0]
    threads = [1, 2] if quick else all_threads()
    size = 8 if quick else 64
    one = f"1x{heads}x{keys}x{size}"
    return {
        "length": [
            {"shape": f"{tokens // n}x{heads}x{n}x{size}", "spread": SPREAD, "threads": 1}
            for n in lengths
        ],
        "density": [
            *({"shape": one, "spread": spread, "threads": 1} for spread in spreads),
            *(
                {"shape": one, "spread": SPREAD, "threads": 1, "alpha": alpha}
                for alpha in (ALPHAS[-1:] if quick else ALPHAS)
            ),
        ],
        "threads": [{"shape": one, "spread": SPREAD, "threads": number} for number in threads],
    }


def measured(queries: str, quick: bool, rounds: int, seconds: float) -> Iterator[dict[str, Any]]:
    """A row of :func:`cpu_attention.measure` for each that is planned, with its figure."""
    before = torch.get_num_threads()
    try:
        for figure, settings in planned(quick).items():
            yield from side_by_side(figure, settings, queries, rounds, seconds)
    finally:
        torch.set_num_threads(before)


def side_by_side(
    figure: str, settings: Settings, queries: str, rounds: int, seconds: float
) -> Iterator[dict[str, Any]]:
    """The rows of a figure, a round of each in turn, so that all see the same of a busy machine."""
    points = []
    for one in settings:
        case = drawn(one["shape"], one["spread"], queries, one.get("alpha", ALPHA))
        runs = contenders(case)
        varied = "alpha" if "alpha" in one else figure
        row = {"figure": figure, "varied": varied, **facts(case, runs)}
        points.append((one["threads"], case, runs, row))
    times: list[list[Round]] = [[] for _ in points]
    end = time.perf_counter() + seconds * len(points)
    for turn in range(rounds + 1):
        if turn > LEAST_ROUNDS and time.perf_counter() > end:
            break
        for (threads, case, runs, _), own in zip(points, times, strict=True):
            torch.set_num_threads(threads)
            passed = one_round(runs, case, turn)
            if turn:  # the first warms up
                own.append(passed)
    for (threads, _, _, row), own in zip(points, times, strict=True):
        torch.set_num_threads(threads)
        yield {**row, **summary(own)}


def points(rows: list[dict[str, Any]], figure: str) -> list[dict[str, Any]]:
    """What a figure draws: a point for each contender, pass and place on the axis."""
    field = {"length": "keys"}.get(figure, figure)
    return [
        {
            "x": row[field],
            "ms": round(row[f"{part}_ms"][name], 4),
            "pass": title,
            "attention": label,
        }
        for row in rows
        if row["figure"] == figure
        for part, title in PASSES.items()
        for name, label in ({HERE: BY_ALPHA} if row["varied"] == "alpha" else LABELS).items()
    ]


def specification(rows: list[dict[str, Any]], figure: str) -> dict[str, Any]:
    """The figure in Vega-Lite: a panel for each pass, a line for each contender.

    A line has a colour that everyone can tell apart, and a shape.
    """
    # Here, as they need the extra "report", which measuring does not
    from fairseq_entmax.analysis.report.charts import COLOURS, PAPER, SHAPES

    values = points(rows, figure)
    places = sorted({point["x"] for point in values})
    axis = {"values": places} if figure != "density" else {"format": "~g"}
    names = list(dict.fromkeys(point["attention"] for point in values))
    scales = {
        "color": {"domain": names, "range": list(COLOURS[: len(names)])},
        "shape": {"domain": names, "range": list(SHAPES[: len(names)])},
    }
    own = {
        channel: {
            "field": "attention",
            "scale": scale,
            "legend": {"title": None, "orient": "bottom", "columns": 1},
        }
        for channel, scale in scales.items()
    }
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "config": PAPER,
        "data": {"values": values},
        "facet": {
            "column": {
                "field": "pass",
                "header": {"title": None},
                "sort": list(PASSES.values()),
            }
        },
        "spec": {
            "width": 270,
            "height": 200,
            "mark": {"type": "line", "point": {"filled": True, "size": 45}},
            "encoding": {
                "x": {
                    "field": "x",
                    "type": "quantitative",
                    "scale": {"type": "log", "nice": False, "domain": [places[0], places[-1]]},
                    "axis": {"title": AXES[figure], "labelOverlap": True, **axis},
                },
                "y": {
                    "field": "ms",
                    "type": "quantitative",
                    "scale": {"type": "log"},
                    "axis": {"title": "milliseconds", "format": "~g", "labelOverlap": True},
                },
                **{channel: {"type": "nominal", **value} for channel, value in own.items()},
            },
        },
    }


def png(spec: dict[str, Any]) -> bytes:
    """The picture, at twice the size that it is shown in."""
    from vl_convert import vegalite_to_png

    return smaller(vegalite_to_png(spec, scale=2))


def smaller(picture: bytes) -> bytes:
    """The same picture as a file of a third of the size: its data compressed with more effort."""
    place, data, others = len(PNG_HEAD), b"", []
    while place < len(picture):
        (length,) = struct.unpack_from(">I", picture, place)
        kind = picture[place + 4 : place + 8]
        content = picture[place + 8 : place + 8 + length]
        place += length + 12
        if kind == b"IDAT":
            data += content
        else:
            others.append((kind, content))
    compressed = b"IDAT", zlib.compress(zlib.decompress(data), 9)
    chunks = [*others[:-1], compressed, others[-1]]  # the last one is the end
    return PNG_HEAD + b"".join(
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in chunks
    )


def table(rows: list[dict[str, Any]]) -> str:
    """Milliseconds, and ratios to scaled_dot_product_attention, in Markdown."""
    lines = []
    for row in rows:
        cells = [row["figure"], row["shape"], f"{row['alpha']:g}", str(row["threads"])]
        cells.append(f"{row['density']:.3f}")
        for part in PASSES:
            for name in LABELS:
                cells.append(f"{row[f'{part}_ms'][name]:.2f} ({row[f'{part}_ratio'][name]:.2f})")
        lines.append(cells)
    titles = [f"{title}: {name}" for title in PASSES.values() for name in LABELS]
    return markdown(["figure", "shape", "α", "threads", "density", *titles], lines, left=2)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", action="store_true", help="measure, and write the numbers first")
    parser.add_argument("--output", type=Path, default=FIGURES, metavar="DIR")
    parser.add_argument("--queries", choices=[INDEPENDENT, SMOOTH], default=INDEPENDENT)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=15.0, help="for a point, at most, about")
    parser.add_argument("--quick", action="store_true", help="toy sizes, to try the command")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    file = options.output / "growth.json"
    if options.run:
        settings = {**machine(), "queries": options.queries, "alpha": ALPHA}
        rows = []
        for row in measured(options.queries, options.quick, options.rounds, options.seconds):
            rows.append(row)
            print(row["figure"], row["shape"], f"{row['both_ms'][HERE]:.2f} ms", flush=True)
        write_json(file, {"settings": settings, "results": rows})
    if not file.is_file():
        parser.error(f"--output {options.output}: there is no growth.json, measure it by --run")
    report = json.loads(file.read_text(encoding="utf-8"))
    for figure in AXES:
        target = options.output / f"growth_{figure}.png"
        target.write_bytes(png(specification(report["results"], figure)))
        print(f"{target.name}: {target.stat().st_size / 1000:.0f} kB")
    print(f"\n{said(report['settings'])}\n\n{table(report['results'])}")


if __name__ == "__main__":
    main()
