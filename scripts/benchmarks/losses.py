"""What the loss of a vocabulary costs, forward and backward, against what else could be taken.

    python scripts/benchmarks/losses.py                                # 1,024 rows of 32,000 keys
    python scripts/benchmarks/losses.py --rows 4096 --keys 8000 --alphas 1.5
    python scripts/benchmarks/losses.py --threads 1 --rounds 9
    python scripts/benchmarks/losses.py --device cuda                  # on a GPU

Peers: torch's cross_entropy, and of the package entmax its losses: by bisection at each alpha, and
at 1.5 and 2 the exact ones, which sort the largest 100 scores of a row first. All are in float32, in
one process, and take turns in every round; bisection takes tens of seconds at these sizes, and
--bisection-rounds says in how many rounds it has its turn. The table has medians in milliseconds, the
median of the ratios to cross_entropy and to bisection at the same alpha within a round, and the memory
that forward and backward pass take on top of scores and gradient of the losses, in multiples of the
scores. A ratio below 1 is faster than cross_entropy; one above 1 in the last column is how many times
faster than bisection.

Scores are of two kinds: "random", normal with a standard deviation of 1, as when a training starts,
and "trained", where ten keys of each row are 6 higher and one of them is the target.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
from collections.abc import Callable
from typing import Any

import entmax as reference
import torch
from common import check_device, check_least, now, rotated, write_json
from mapping import OURS
from torch import Tensor
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from fairseq_entmax import kernels
from fairseq_entmax.mappings import entmax_loss, entmax_loss_parts

CROSS_ENTROPY = "torch cross_entropy"
KINDS = ("random", "trained")
STANDING_OUT, AHEAD_BY = 10, 6.0

Loss = Callable[[Tensor, Tensor], Tensor]


def bisection(alpha: float) -> str:
    """The name of what a loss of this alpha is compared with."""
    return f"entmax.bisect {alpha:g}"


def contenders(alphas: list[float], device: str) -> dict[str, tuple[float, Loss]]:
    """Name to alpha and a function from scores and targets to losses."""

    def here(backend: str, alpha: float) -> Loss:
        def run(scores: Tensor, target: Tensor) -> Tensor:
            os.environ[kernels.VARIABLE] = backend
            return entmax_loss(scores, target, alpha)

        return run

    def bisected(alpha: float) -> Loss:
        return lambda scores, target: reference.entmax_bisect_loss(scores, target, alpha)

    runs: dict[str, tuple[float, Loss]] = {
        CROSS_ENTROPY: (
            1.0,
            lambda scores, target: functional.cross_entropy(scores, target, reduction="none"),
        )
    }
    for alpha in alphas:
        if alpha == 1.0:  # torch's own operations on every backend
            runs["here 1 (torch)"] = alpha, here("auto", alpha)
            continue
        for backend in (OURS[device], "torch"):
            runs[f"here {alpha:g} ({backend})"] = alpha, here(backend, alpha)
        runs[bisection(alpha)] = alpha, bisected(alpha)
    if 1.5 in alphas:
        runs["entmax.entmax15 k=100"] = 1.5, lambda z, t: reference.entmax15_loss(z, t, 100)
    if 2.0 in alphas:
        runs["entmax.sparsemax k=100"] = 2.0, lambda z, t: reference.sparsemax_loss(z, t, 100)
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


def timed(run: Loss, scores: Tensor, target: Tensor) -> tuple[float, float]:
    """Seconds of a forward and of its backward pass."""
    scores = scores.detach().requires_grad_()
    grad = torch.ones_like(target, dtype=scores.dtype)
    begin = now(scores)
    losses = run(scores, target)
    middle = now(scores)
    losses.backward(grad)
    return middle - begin, now(scores) - middle


def peak_memory(run: Loss, scores: Tensor, target: Tensor) -> float:
    """What a forward and backward pass take, as torch allocates it, in multiples of the scores."""
    if scores.is_cuda:
        torch.cuda.reset_peak_memory_stats(scores.device)
        before = torch.cuda.memory_allocated(scores.device)
        timed(run, scores, target)
        return (torch.cuda.max_memory_allocated(scores.device) - before) / scores.nbytes
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        timed(run, scores, target)
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    return max(itertools.accumulate(event.nbytes() for event in events)) / scores.nbytes


def measure(kind: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """A row of the table for each contender."""
    scores, target = rows_of(kind, options.rows, options.keys, options.device)
    runs = contenders(options.alphas, options.device)
    times: dict[str, dict[int, tuple[float, float]]] = {name: {} for name in runs}
    for turn in range(options.rounds + 1):
        for name in rotated(list(runs), turn):
            # The first round warms up, which bisection does not need
            if name.startswith("entmax.bisect") and not 1 <= turn <= options.bisection_rounds:
                continue
            seconds = timed(runs[name][1], scores, target)
            if turn:
                times[name][turn] = seconds
    return [
        {
            "scores": kind,
            "loss": name,
            "support": entmax_loss_parts(scores, target, alpha).support.double().mean().item(),
            "forward_ms": statistics.median(one for one, _ in times[name].values()) * 1e3,
            "backward_ms": statistics.median(one for _, one in times[name].values()) * 1e3,
            "to_cross_entropy": ratio(times[name], times[CROSS_ENTROPY]),
            "bisection_to_it": ratio(times.get(bisection(alpha), {}), times[name]),
            "peak_memory": peak_memory(run, scores, target),
        }
        for name, (alpha, run) in runs.items()
        if times[name]
    ]


def ratio(
    ours: dict[int, tuple[float, float]], theirs: dict[int, tuple[float, float]]
) -> float | None:
    """Median of the ratios of whole times in the rounds that both have; None without one."""
    both = [sum(ours[turn]) / sum(theirs[turn]) for turn in ours if turn in theirs]
    return statistics.median(both) if both else None


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1024, help="words of a batch")
    parser.add_argument("--keys", type=int, default=32_000, help="of the vocabulary")
    parser.add_argument("--alphas", nargs="+", type=float, default=[1.0, 1.33, 1.5, 2.0])
    parser.add_argument("--scores", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bisection-rounds", type=int, default=1)
    parser.add_argument("--threads", type=int, help="of torch and the kernel; those of torch")
    parser.add_argument("--device", choices=list(OURS), default="cpu")
    parser.add_argument("--json", metavar="FILE", help="the numbers")
    options = parser.parse_args()
    check_device(parser, options.device)
    check_least(parser, options, rows=1, keys=1, rounds=1, bisection_rounds=0, threads=1)
    for alpha in options.alphas:
        if not 1 <= alpha <= 2:
            parser.error(f"--alphas must be from 1 to 2, not {alpha:g}")
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    return options


def main() -> None:
    options = parsed()
    on = f"{torch.get_num_threads()} thread(s)"
    if options.device == "cuda":
        on = torch.cuda.get_device_name()
    print(f"{options.rows} rows of {options.keys} keys, {on}")
    results: list[dict[str, Any]] = []
    for kind in options.scores:
        print(f"\n{kind:<24}  support  forward ms  backward ms  to CE  memory  bisection to it")
        for row in measure(kind, options):
            results.append(row)
            bisected = row["bisection_to_it"]
            print(
                f"{row['loss']:<24}  {row['support']:>7.1f}  {row['forward_ms']:>10.1f}  "
                f"{row['backward_ms']:>11.1f}  {row['to_cross_entropy']:>5.2f}  "
                f"{row['peak_memory']:>6.2f}  {'' if bisected is None else f'{bisected:.1f}':>15}"
            )
        if options.json:  # after each, so that a run that is stopped has written what it has
            settings = {**vars(options), "on": on, "torch": torch.__version__}
            write_json(options.json, {"settings": settings, "results": results})


if __name__ == "__main__":
    main()
