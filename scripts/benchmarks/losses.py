"""Times losses over a vocabulary, forward and backward, against their alternatives.

    python scripts/benchmarks/losses.py                                # 1,024 rows of 32,000 keys
    python scripts/benchmarks/losses.py --rows 4096 --keys 8000 --alphas 1.5
    python scripts/benchmarks/losses.py --threads 1 --rounds 9
    python scripts/benchmarks/losses.py --device cuda                  # on a GPU

Peers: torch's cross_entropy, and the losses of the package entmax: by bisection at each alpha, and
the exact ones at 1.5 and 2, which sort the largest 100 scores of a row first. All use float32, run in
one process, and take turns in every round. Bisection takes tens of seconds at these sizes;
--bisection-rounds says in how many rounds it takes part. The table has medians in milliseconds, the
medians of the ratios to cross_entropy and to bisection at the same alpha within a round, and the memory
that forward and backward pass take on top of the scores and the gradient of the losses, in multiples of
the scores. A ratio to cross_entropy below 1 is faster than cross_entropy; the last column says how many
times faster than bisection a loss is.

Scores are of two kinds: "random", normal with a standard deviation of 1, as when a training starts,
and "trained", where ten keys of each row are 6 higher and one of them is the target.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any

import common
import entmax as reference
import torch
from mapping import OURS
from torch import Tensor
from torch.nn import functional

from fairseq_entmax import kernels
from fairseq_entmax.mappings import entmax_loss, entmax_loss_parts

CROSS_ENTROPY = "torch cross_entropy"
BISECT = "entmax.bisect"
KINDS = ("random", "trained")
STANDING_OUT, AHEAD_BY = 10, 6.0
COLUMNS = {
    "loss": ("loss", ""),
    "support": ("support", ".1f"),
    "forward ms": ("forward_ms", ".1f"),
    "backward ms": ("backward_ms", ".1f"),
    "to CE": ("to_cross_entropy", ".2f"),
    "memory": ("peak_memory", ".2f"),
    "bisection to this": ("bisection_to_it", ".1f"),
}

Loss = Callable[[Tensor, Tensor], Tensor]


def contenders(alphas: list[float], device: str) -> dict[str, tuple[float, Loss]]:
    """From names to alpha and a function from scores and targets to losses."""

    def here(backend: str, alpha: float) -> Loss:
        def run(scores: Tensor, target: Tensor) -> Tensor:
            os.environ[kernels.VARIABLE] = backend
            return entmax_loss(scores, target, alpha)

        return run

    def of_entmax(loss: Callable[..., Tensor], number: float) -> Loss:
        return lambda scores, target: loss(scores, target, number)

    runs: dict[str, tuple[float, Loss]] = {
        CROSS_ENTROPY: (1.0, lambda z, t: functional.cross_entropy(z, t, reduction="none"))
    }
    for alpha in alphas:
        if alpha == 1.0:  # torch's own operations on every backend
            runs["here 1 (torch)"] = alpha, here("auto", alpha)
            continue
        for backend in (OURS[device], "torch"):
            runs[f"here {alpha:g} ({backend})"] = alpha, here(backend, alpha)
        runs[f"{BISECT} {alpha:g}"] = alpha, of_entmax(reference.entmax_bisect_loss, alpha)
    if 1.5 in alphas:
        runs["entmax.entmax15 k=100"] = 1.5, of_entmax(reference.entmax15_loss, 100)
    if 2.0 in alphas:
        runs["entmax.sparsemax k=100"] = 2.0, of_entmax(reference.sparsemax_loss, 100)
    return runs


def rows_of(kind: str, rows: int, keys: int, device: str) -> tuple[Tensor, Tensor]:
    """Scores and targets."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(rows, keys, generator=generator)
    target = torch.randint(keys, (rows,), generator=generator)
    if kind == "trained":
        ahead = torch.randint(keys, (rows, STANDING_OUT), generator=generator)
        ahead[:, 0] = target
        scores.scatter_add_(-1, ahead, torch.full(ahead.shape, AHEAD_BY))
    return scores.to(device), target.to(device)


def measure(kind: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row of the table for each contender."""
    scores, target = rows_of(kind, options.rows, options.keys, options.device)
    grad = torch.ones_like(target, dtype=scores.dtype)
    runs = contenders(options.alphas, options.device)

    def run(name: str, turn: int) -> tuple[float, float] | None:
        # Bisection does not need to warm up
        if name.startswith(BISECT) and not 1 <= turn <= options.bisection_rounds:
            return None
        return common.timed(lambda given: runs[name][1](given, target), [scores], grad)

    times = common.in_turns([*runs], options.rounds, run)
    whole = {name: [sum(pair) for pair in pairs] for name, pairs in times.items()}
    rows = []
    for name, (alpha, _) in runs.items():
        if not times[name]:
            continue
        forward, backward = common.medians_ms(times[name])
        bisected = whole.get(f"{BISECT} {alpha:g}", [])
        both = min(len(whole[name]), len(bisected))
        rows.append(
            {
                "scores": kind,
                "loss": name,
                "support": entmax_loss_parts(scores, target, alpha).support.double().mean().item(),
                "forward_ms": forward,
                "backward_ms": backward,
                "to_cross_entropy": common.median_ratio(
                    whole[name], whole[CROSS_ENTROPY][: len(whole[name])]
                ),
                "bisection_to_it": common.median_ratio(bisected[:both], whole[name][:both])
                if both
                else None,
                "peak_memory": common.peak_bytes(lambda name=name: run(name, 1), options.device)
                / scores.nbytes,
            }
        )
    return rows


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument("--rows", type=common.positive, default=1024, help="words in a batch")
    parser.add_argument("--keys", type=common.positive, default=32_000, help="vocabulary size")
    parser.add_argument("--alphas", nargs="+", type=float, default=[1.0, 1.33, 1.5, 2.0])
    parser.add_argument("--scores", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--rounds", type=common.positive, default=5)
    parser.add_argument("--bisection-rounds", type=int, default=1)
    parser.add_argument("--threads", type=common.positive, default=torch.get_num_threads())
    parser.add_argument("--device", type=common.device, default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    settings = {**common.machine(options.device), **vars(options)}
    print(f"{options.rows} rows of {options.keys} keys, {common.machine_line(settings)}")
    results: list[dict[str, Any]] = []
    for kind in options.scores:
        rows = measure(kind, options)
        results += rows
        print(f"\n{kind}\n{common.table(rows, COLUMNS)}", flush=True)
        common.write_json(options.json, settings, results=results)


if __name__ == "__main__":
    main()
