"""Times mappings, forward and backward, against their alternatives.

    python scripts/benchmarks/mapping.py                            # the shapes of translation
    python scripts/benchmarks/mapping.py --shapes 4096x8 256x1024   # rows x keys
    python scripts/benchmarks/mapping.py --spread 0.5 --alpha 1.1   # denser rows
    python scripts/benchmarks/mapping.py --threads 1                # one thread
    python scripts/benchmarks/mapping.py --threads 2 --drawn        # how many times as fast as entmax's
    python scripts/benchmarks/mapping.py --device cuda              # on a GPU

Peers: torch.softmax; sparsemax, entmax15 (exact, one fixed alpha) and entmax_bisect (the only one with
a gradient for alpha) of the package entmax; and on a GPU triton_entmax, at one fixed alpha, of the
package adasplash if it is installed. All take turns in every repeat. The table has medians in
milliseconds, times as multiples of this package's learned alpha, and the memory that forward and
backward pass take on top of scores and gradient, in multiples of the scores, including buffers of the
native kernel. Scores are normal with a standard deviation of --spread, for 8 heads with an alpha each.

--drawn draws the alpha of each head at random from [1, 2], times ``(f(z) * g).sum().backward()`` as a
whole, with the gradient of alpha, and prints how many times as long entmax_bisect (with the same
alpha) and entmax15 take: the median ratio within a round for each shape, and the least of all shapes.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import os
import statistics
from collections.abc import Callable
from typing import Any

import common
import entmax as reference
import torch
from torch import Tensor

from fairseq_entmax import kernels
from fairseq_entmax.kernels.native.library import lanes, threads_for
from fairseq_entmax.mappings.functional import map_scores

SHAPES = [(30720, 30), (15360, 60), (8192, 128), (8192, 512)]
BISECT, EXACT = PEERS = ("entmax.entmax_bisect", "entmax.entmax15")
OURS = {"cpu": "native", "cuda": "triton"}
COLUMNS = {
    "mapping": ("mapping", ""),
    "forward ms": ("forward_ms", ".3f"),
    "backward ms": ("backward_ms", ".3f"),
    "ratio": ("ratio", ".2f"),
    "memory": ("peak_memory", ".2f"),
}


def learned(device: str) -> str:
    """The name of the contender that all are compared with."""
    return f"alpha-entmax ({OURS[device]})"


def heads_of(rows: int) -> int:
    """The number of heads, each with its own alpha, into which the rows are divided."""
    return math.gcd(rows, 8)


def contenders(alpha: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    """From names to functions from scores ``(heads, rows / heads, keys)`` to probabilities.

    Args:
        alpha: alpha of each head, ``(heads, 1, 1)``, with a gradient.
    """
    ours = OURS[alpha.device.type]

    def here(backend: str, value: float | Tensor) -> Callable[[Tensor], Tensor]:
        def run(scores: Tensor) -> Tensor:
            os.environ[kernels.VARIABLE] = backend
            return map_scores(scores, value)

        return run

    runs = {
        "torch.softmax": lambda scores: torch.softmax(scores, -1),
        f"1.5-entmax ({ours})": here(ours, 1.5),
        learned(alpha.device.type): here(ours, alpha),
        "alpha-entmax (torch)": here("torch", alpha),
        "entmax.sparsemax": lambda scores: reference.sparsemax(scores, -1),
        EXACT: lambda scores: reference.entmax15(scores, -1),
        BISECT: lambda scores: reference.entmax_bisect(scores, alpha, -1),
    }
    if alpha.is_cuda and importlib.util.find_spec("adasplash"):
        triton_entmax = importlib.import_module("adasplash").triton_entmax
        runs["adasplash.triton_entmax, 1.5"] = lambda scores: triton_entmax(scores, alpha=1.5)
    return runs


def inputs(shape: tuple[int, int], options: argparse.Namespace) -> tuple[Tensor, Tensor]:
    """Scores and the gradient of the probabilities, ``(heads, rows / heads, keys)``."""
    torch.manual_seed(0)
    rows, keys = shape
    sizes = (heads_of(rows), rows // heads_of(rows), keys)
    scores, grad = (torch.randn(sizes, device=options.device) for _ in range(2))
    return scores * options.spread, grad


def library_bytes(scores: Tensor) -> int:
    """The most memory that the library in C itself takes, forward or backward."""
    keys = scores.size(-1)
    threads = threads_for(scores.numel(), -(-(scores.numel() // keys) // lanes()))
    return threads * 6 * (keys + 2 * lanes()) * lanes() * scores.element_size()


def measure(shape: tuple[int, int], options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row of the table for each contender."""
    scores, grad = inputs(shape, options)
    alpha = torch.full((len(scores), 1, 1), options.alpha, device=options.device)
    runs = contenders(alpha.requires_grad_())
    times = common.in_turns(
        [*runs], options.repeats, lambda name, _: common.timed(runs[name], [scores], grad)
    )
    medians = {name: common.medians_ms(values) for name, values in times.items()}
    one = sum(medians[learned(options.device)])
    rows = []
    for name, (forward, backward) in medians.items():
        peak = common.peak_bytes(
            lambda name=name: common.timed(runs[name], [scores], grad), options.device
        )
        if "(native)" in name:
            peak += library_bytes(scores)
        rows.append(
            {
                "rows": shape[0],
                "keys": shape[1],
                "mapping": name,
                "forward_ms": forward,
                "backward_ms": backward,
                "ratio": (forward + backward) / one,
                "peak_memory": peak / scores.nbytes,
            }
        )
    return rows


def measure_drawn(shape: tuple[int, int], options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds with drawn alphas, and how many times as long the peers take."""
    scores, grad = inputs(shape, options)
    alpha = (1.0 + torch.rand(len(scores), 1, 1, device=options.device)).requires_grad_()
    own, runs = learned(options.device), contenders(alpha)

    def seconds(name: str, _: int) -> float:
        given = scores.detach().requires_grad_()
        begin = common.now(scores)
        (runs[name](given) * grad).sum().backward()
        return common.now(scores) - begin

    times = common.in_turns([own, *PEERS], options.repeats, seconds)
    return {
        "rows": shape[0],
        "keys": shape[1],
        "shape": f"{shape[0]}x{shape[1]}",
        "ms": {name: statistics.median(values) * 1e3 for name, values in times.items()},
        **{name: common.median_ratio(times[name], times[own]) for name in PEERS},
    }


def main() -> None:
    parser = common.arguments(__doc__, "mapping.json")
    parser.add_argument(
        "--shapes", nargs="+", default=SHAPES, metavar="ROWSxKEYS", type=common.rows_and_keys
    )
    parser.add_argument("--drawn", action="store_true", help="draw alphas in [1, 2], print ratios")
    parser.add_argument("--alpha", type=float, default=1.33, help="value of the learned alphas")
    parser.add_argument("--spread", type=float, default=2.0, help="standard deviation of scores")
    parser.add_argument("--repeats", type=common.positive, default=9)
    parser.add_argument("--threads", type=common.positive, default=torch.get_num_threads())
    parser.add_argument("--device", type=common.device, default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    settings = {**common.machine(options.device), **vars(options)}
    print(common.machine_line(settings))
    results: list[dict[str, Any]] = []
    for shape in options.shapes:
        if options.drawn:
            results.append(measure_drawn(shape, options))
        else:
            rows = measure(shape, options)
            results += rows
            print(f"\n{shape[0]}x{shape[1]}\n{common.table(rows, COLUMNS)}", flush=True)
        # After each shape, so that a run that is stopped has written its results
        common.write_json(options.json, settings, results=results)
    if options.drawn:
        least = {name: min(row[name] for row in results) for name in PEERS}
        columns = {name: (name, ".2f") for name in PEERS}
        rows = [*results, {"shape": "minimum", **least}]
        print(common.table(rows, {"times as fast as": ("shape", ""), **columns}))


if __name__ == "__main__":
    main()
