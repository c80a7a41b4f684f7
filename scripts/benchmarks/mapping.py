"""What a mapping costs, forward and backward, against what else could be taken.

    python scripts/benchmarks/mapping.py                            # the shapes of translation
    python scripts/benchmarks/mapping.py --shapes 4096x8 256x1024   # rows x keys
    python scripts/benchmarks/mapping.py --growth                   # with the length of rows, and with rows
    python scripts/benchmarks/mapping.py --spread 0.5 --alpha 1.1   # denser rows
    python scripts/benchmarks/mapping.py --threads 1                # one thread
    python scripts/benchmarks/mapping.py --threads 2 --drawn        # how many times as fast as entmax's
    python scripts/benchmarks/mapping.py --device cuda              # on a GPU

Peers: torch.softmax, and of the package entmax: sparsemax, entmax15 (exact, one fixed alpha), and
entmax_bisect, the only one with a gradient for alpha; on a GPU, of the package adasplash where it is
installed, triton_entmax at one fixed alpha. All take turns in every repeat; the table has medians in
milliseconds, times as multiples of this package's learned alpha, and the memory that a forward and
backward pass take on top of scores and gradient, in multiples of the scores, buffers of the native
kernel included. Scores are normal with
a standard deviation of --spread, of 8 heads with an alpha each.

--growth measures rows of 8 to 8,192 keys with 2^20 scores in all, and 2^8 to 2^16 rows of 32 keys,
and fits time ~ size^exponent to each by least squares of the logarithms: an exponent of 0 for the
length of rows means that a score costs the same in rows of any length, one of 1 for their number
that a row does, however many there are.

--drawn draws the alpha of each head at random from [1, 2], times ``(f(z) * g).sum().backward()`` as
one, with the gradient of alpha, and prints how many times as long entmax_bisect with the same alpha
and entmax15 take: the median of the ratios within a round for each shape, and the least of all shapes.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import math
import os
import re
import statistics
from collections.abc import Callable
from typing import Any

import entmax as reference
import torch
from common import (
    check_alpha,
    check_device,
    check_least,
    check_positive,
    machine,
    now,
    rotated,
    write_json,
)
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from fairseq_entmax import kernels
from fairseq_entmax.kernels.native import rows as native_rows
from fairseq_entmax.mappings.functional import map_scores

SHAPES = ["30720x30", "15360x60", "8192x128", "8192x512"]
BY_LENGTH = [f"{2**20 // keys}x{keys}" for keys in (8, 32, 128, 512, 2048, 8192)]
BY_ROWS = [f"{2**power}x32" for power in (8, 10, 12, 14, 16)]
DRAWN_PEERS = ("entmax.entmax_bisect", "entmax.entmax15")
OURS = {"cpu": "native", "cuda": "triton"}


def learned(device: str) -> str:
    """The name of what all are compared with."""
    return f"alpha-entmax ({OURS[device]})"


def heads_of(rows: int) -> int:
    """Heads, each with an alpha of its own, that the rows are of."""
    return math.gcd(rows, 8)


def contenders(alpha: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    """Name to a function from scores ``(heads, rows / heads, keys)`` to probabilities.

    Args:
        alpha: of each head, ``(heads, 1, 1)``, with a gradient.
    """
    device = alpha.device.type
    ours = OURS[device]

    def here(backend: str, value: float | Tensor) -> Callable[[Tensor], Tensor]:
        def run(scores: Tensor) -> Tensor:
            os.environ[kernels.VARIABLE] = backend
            return map_scores(scores, value)

        return run

    runs = {
        "torch.softmax": lambda scores: torch.softmax(scores, -1),
        f"1.5-entmax ({ours})": here(ours, 1.5),
        learned(device): here(ours, alpha),
        "alpha-entmax (torch)": here("torch", alpha),
        "entmax.sparsemax": lambda scores: reference.sparsemax(scores, -1),
        "entmax.entmax15": lambda scores: reference.entmax15(scores, -1),
        "entmax.entmax_bisect": lambda scores: reference.entmax_bisect(scores, alpha, -1),
    }
    if device == "cuda" and importlib.util.find_spec("adasplash"):
        triton_entmax = importlib.import_module("adasplash").triton_entmax
        runs["adasplash.triton_entmax, 1.5"] = lambda scores: triton_entmax(scores, alpha=1.5)
    return runs


def timed(run: Callable[[Tensor], Tensor], scores: Tensor, grad: Tensor) -> tuple[float, float]:
    """Seconds of a forward and of its backward pass."""
    scores = scores.detach().requires_grad_()
    begin = now(scores)
    probs = run(scores)
    middle = now(scores)
    probs.backward(grad)
    return middle - begin, now(scores) - middle


def peak_memory(
    run: Callable[[Tensor], Tensor], scores: Tensor, grad: Tensor, is_ours: bool
) -> float:
    """What a forward and backward pass take on top of scores and gradient, as torch allocates it,
    in multiples of the scores."""
    if scores.is_cuda:
        torch.cuda.reset_peak_memory_stats(scores.device)
        before = torch.cuda.memory_allocated(scores.device)
        timed(run, scores, grad)
        peak = torch.cuda.max_memory_allocated(scores.device) - before
    else:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
            timed(run, scores, grad)
        events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
        events.sort(key=lambda event: event.start_ns())
        peak = max(itertools.accumulate(event.nbytes() for event in events))
        if is_ours:
            peak += native_rows.buffer_bytes(scores)
    return peak / scores.nbytes


def measure(rows: int, keys: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    shape = (heads_of(rows), rows // heads_of(rows), keys)
    scores = torch.randn(shape, device=options.device) * options.spread
    grad = torch.randn(shape, device=options.device)
    runs = contenders(
        torch.full((shape[0], 1, 1), options.alpha, device=options.device).requires_grad_()
    )
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for repeat in range(options.repeats + 1):
        for name in rotated(list(runs), repeat):
            seconds = timed(runs[name], scores, grad)
            if repeat:  # the first round warms up
                times[name].append(seconds)
    medians = {
        name: [statistics.median(part) for part in zip(*values, strict=True)]
        for name, values in times.items()
    }
    one = sum(medians[learned(options.device)])
    return [
        {
            "rows": rows,
            "keys": keys,
            "mapping": name,
            "forward_ms": forward * 1e3,
            "backward_ms": backward * 1e3,
            "ratio": (forward + backward) / one,
            "peak_memory": peak_memory(runs[name], scores, grad, "(native)" in name),
        }
        for name, (forward, backward) in medians.items()
    ]


def measure_drawn(rows_and_keys: str, options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of each with drawn alphas, and how many times as long the peers take."""
    torch.manual_seed(0)
    rows, keys = map(int, rows_and_keys.split("x"))
    shape = (heads_of(rows), rows // heads_of(rows), keys)
    scores = torch.randn(shape, device=options.device) * options.spread
    grad = torch.randn(shape, device=options.device)
    alpha = (1.0 + torch.rand(shape[0], 1, 1, device=options.device)).requires_grad_()
    own, runs = learned(options.device), contenders(alpha)
    times: dict[str, list[float]] = {name: [] for name in (own, *DRAWN_PEERS)}
    for repeat in range(options.repeats + 1):
        for name in rotated(list(times), repeat):
            given = scores.detach().requires_grad_()
            begin = now(scores)
            (runs[name](given) * grad).sum().backward()
            spent = now(scores) - begin
            if repeat:  # the first round warms up
                times[name].append(spent)
    row: dict[str, Any] = {"rows": rows, "keys": keys}
    row["ms"] = {name: statistics.median(values) * 1e3 for name, values in times.items()}
    row["ratio"] = {
        name: statistics.median(a / b for a, b in zip(times[name], times[own], strict=True))
        for name in DRAWN_PEERS
    }
    return row


def print_drawn(results: list[dict[str, Any]]) -> None:
    """For each shape, and the least of all: what a goal for the mapping alone is about."""
    print(f"{'times as fast as':<16}" + "".join(f"  {name:>20}" for name in DRAWN_PEERS))
    lines = [(f"{row['rows']}x{row['keys']}", row["ratio"]) for row in results]
    least = {name: min(row["ratio"][name] for row in results) for name in DRAWN_PEERS}
    for title, ratios in [*lines, ("least of all", least)]:
        print(f"{title:<16}" + "".join(f"  {ratios[name]:>20.2f}" for name in DRAWN_PEERS))


def exponent(sizes: list[int], costs: list[float]) -> float:
    """The e of cost ~ size^e, by least squares of the logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    return statistics.linear_regression(x, y).slope


def growth(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """How the time of each mapping grows with the length of rows, and with their number."""
    rows = []
    for name in dict.fromkeys(result["mapping"] for result in results):
        ours = [result for result in results if result["mapping"] == name]
        row = {"mapping": name}
        for kind, shapes, size in (("length", BY_LENGTH, "keys"), ("rows", BY_ROWS, "rows")):
            part = [r for r in ours if f"{r['rows']}x{r['keys']}" in shapes]
            costs = [r["forward_ms"] + r["backward_ms"] for r in part]
            row[f"exponent_of_{kind}"] = exponent([r[size] for r in part], costs)
        rows.append(row)
    return rows


def parsed() -> tuple[argparse.Namespace, list[str]]:
    """The options, and the shapes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="ROWSxKEYS")
    parser.add_argument("--growth", action="store_true", help="shapes of its own, and the growth")
    parser.add_argument("--drawn", action="store_true", help="alphas drawn from [1, 2], and ratios")
    parser.add_argument("--alpha", type=float, default=1.33, help="of the learned ones")
    parser.add_argument("--spread", type=float, default=2.0, help="standard deviation of scores")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, help="of torch and the kernel; those of torch")
    parser.add_argument("--device", choices=list(OURS), default="cpu")
    parser.add_argument("--json", metavar="FILE", default="mapping.json", help="the numbers")
    options = parser.parse_args()
    check_device(parser, options.device)
    check_least(parser, options, repeats=1, threads=1)
    check_positive(parser, options, "spread")
    check_alpha(parser, options)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    if options.drawn and options.growth:
        parser.error("--drawn and --growth are two measurements: give one of them")
    shapes = [*BY_LENGTH, *BY_ROWS] if options.growth else options.shapes
    for shape in shapes:
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", shape):
            parser.error(f"--shapes got {shape!r}: give ROWSxKEYS, such as 8192x128")
    return options, shapes


def main() -> None:
    options, shapes = parsed()
    on = f"{torch.get_num_threads()} thread(s)"
    if options.device == "cuda":
        on = torch.cuda.get_device_name()
    print(on)
    results: list[dict[str, Any]] = []
    settings = {**machine(options.device), **vars(options), "on": on}

    def write(grown: list[dict[str, Any]] | None = None) -> None:
        # After each shape, so that a run that is stopped has written what it has
        growths = {} if options.drawn else {"growth": grown or []}
        write_json(options.json, {"settings": settings, "results": results, **growths})

    if options.drawn:
        for shape in shapes:
            results.append(measure_drawn(shape, options))
            write()
        print_drawn(results)
        return
    for shape in shapes:
        rows, keys = map(int, shape.split("x"))
        print(f"\n{shape:<28}  forward ms  backward ms  ratio  memory")
        for row in measure(rows, keys, options):
            results.append(row)
            print(
                f"{row['mapping']:<28}  {row['forward_ms']:>10.3f}  {row['backward_ms']:>11.3f}  "
                f"{row['ratio']:>5.2f}  {row['peak_memory']:>6.2f}"
            )
        write()
    grown = growth(results) if options.growth else []
    if grown:
        print(f"\n{'exponent of':<28}  length of rows  number of rows")
    for row in grown:
        print(
            f"{row['mapping']:<28}  {row['exponent_of_length']:>14.2f}  "
            f"{row['exponent_of_rows']:>14.2f}"
        )
    write(grown)


if __name__ == "__main__":
    main()
