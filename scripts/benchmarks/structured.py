"""Times structured mappings, forward and backward, against their alternatives.

    OMP_NUM_THREADS=1 python scripts/benchmarks/structured.py       # one thread
    python scripts/benchmarks/structured.py --shapes 4096x8 256x1024   # rows x keys
    python scripts/benchmarks/structured.py --tv 1 --spread 0.5     # longer runs
    python scripts/benchmarks/structured.py --device cuda           # torch's operations, on a GPU

Peers: the same mappings on torch's operations, and softmax. All take turns in every repeat. The
table has medians in milliseconds, nanoseconds a key for both passes together, and times as
multiples of this package's fusedmax. Scores are normal with a standard deviation of --spread.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import common
import torch
from torch import Tensor

from fairseq_entmax import kernels
from fairseq_entmax.mappings import fusedmax, oscarmax, sparsemax, sq_pnorm_max

SHAPES = [(30720, 30), (8192, 128)]  # 1024 x 30 x 30 and 64 x 128 x 128
# Mappings that take longer than this in all are timed no more often
SLOW_SECONDS, SLOW_REPEATS = 0.5, 2
COLUMNS = {
    "mapping": ("mapping", ""),
    "forward ms": ("forward_ms", ".3f"),
    "backward ms": ("backward_ms", ".3f"),
    "ns per key": ("ns_a_key", ".1f"),
    "ratio": ("ratio", ".2f"),
}


Run = Callable[[Tensor], Tensor]


def contenders(options: argparse.Namespace) -> dict[str, Run]:
    """From names to mappings; the others are compared with the first."""
    mappings: dict[str, Run] = {
        "fusedmax": lambda scores: fusedmax(scores, options.tv),
        "oscarmax": lambda scores: oscarmax(scores, options.oscar),
        "sq-pnorm-max": lambda scores: sq_pnorm_max(scores, options.p),
        "sparsemax": sparsemax,
    }

    def by(backend: str, mapping: Run) -> Run:
        def run(scores: Tensor) -> Tensor:
            os.environ[kernels.VARIABLE] = backend
            return mapping(scores)

        return run

    runs = {f"{name} (here)": by("auto", mapping) for name, mapping in mappings.items()}
    runs |= {f"{name} (torch)": by("torch", mapping) for name, mapping in mappings.items()}
    runs["torch.softmax"] = lambda scores: torch.softmax(scores, -1)
    return runs


def measure(
    runs: dict[str, Run], shape: tuple[int, int], options: argparse.Namespace
) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    scores, grad = (torch.randn(shape).to(options.device) for _ in range(2))
    scores *= options.spread
    spent: dict[str, list[float]] = {name: [] for name in runs}

    def seconds(name: str, _: int) -> tuple[float, float] | None:
        if sum(spent[name]) > SLOW_SECONDS and len(spent[name]) > SLOW_REPEATS:
            return None
        pair = common.timed(runs[name], [scores], grad)
        spent[name].append(sum(pair))
        return pair

    times = common.in_turns([*runs], options.repeats, seconds)
    medians = {name: common.medians_ms(values) for name, values in times.items()}
    own = sum(next(iter(medians.values())))
    return [
        {
            "rows": shape[0],
            "keys": shape[1],
            "mapping": name,
            "forward_ms": forward,
            "backward_ms": backward,
            "ns_a_key": (forward + backward) * 1e6 / scores.numel(),
            "ratio": (forward + backward) / own,
        }
        for name, (forward, backward) in medians.items()
    ]


def main() -> None:
    parser = common.arguments(__doc__, "structured.json")
    parser.add_argument(
        "--shapes", nargs="+", default=SHAPES, metavar="ROWSxKEYS", type=common.rows_and_keys
    )
    parser.add_argument("--tv", type=float, default=0.1, help="strength of fusedmax")
    parser.add_argument("--oscar", type=float, default=0.01, help="strength of oscarmax")
    parser.add_argument("--p", type=float, default=1.5, help="p of sq-pnorm-max, in (1, 2]")
    parser.add_argument("--spread", type=float, default=1.0, help="standard deviation of scores")
    parser.add_argument("--repeats", type=common.positive, default=15)
    parser.add_argument("--device", type=common.device, default="cpu")
    options = parser.parse_args()
    settings = {**common.machine(options.device), **vars(options)}
    print(common.machine_line(settings))
    runs = contenders(options)
    results: list[dict[str, Any]] = []
    for shape in options.shapes:
        rows = measure(runs, shape, options)
        results += rows
        print(f"\n{shape[0]}x{shape[1]}\n{common.table(rows, COLUMNS)}", flush=True)
        # After each shape, so that a run that is stopped has written its results
        common.write_json(options.json, settings, results=results)


if __name__ == "__main__":
    main()
