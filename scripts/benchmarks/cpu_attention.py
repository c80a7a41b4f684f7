"""What attention costs on a CPU, forward and with its backward pass, against softmax's.

    python scripts/benchmarks/cpu_attention.py                     # one and all threads: half an hour
    python scripts/benchmarks/cpu_attention.py --threads 1 --shapes 1x8x1024x64 --spreads 1.5
    python scripts/benchmarks/cpu_attention.py --dumped quickstart.pt       # of dump_attention.py

In turns in one process: the whole of attention here with a learned alpha for each head ("here"),
torch's scaled_dot_product_attention ("sdpa"), softmax between two products ("bmm"), and the mapping
of this package between them ("apart"). Keys and values are N(0, 1), queries that times the spread,
which is the standard deviation of the scores; smooth queries resemble their neighbours, as those of a
text do. A first table has medians in milliseconds and, in brackets, the medians of the ratios to sdpa
within a round, a second one these ratios alone, a third one the largest of them; the density, which is the part of the keys that get a weight; what is kept for the
backward pass, and on Linux the most memory that forward and backward pass take on top of their
inputs, both in multiples of the dense probabilities.
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from attention_inputs import QUERIES, Case, drawn, dumped, numbers_of
from attention_tables import APART, BMM, HERE, PASSES, SDPA, ratios, table, worst
from common import (
    check_alpha,
    check_least,
    check_positive,
    machine,
    processors,
    rotated,
    said,
    write_json,
)
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fairseq_entmax.kernels.native.attention import attention
from fairseq_entmax.mappings.functional import map_scores

SHAPES = ["32x4x32x32", "8x8x64x64", "8x8x128x64", "4x8x512x64", "1x8x1024x64", "1x8x2048x64"]
SPREADS = [0.5, 1.5, 4.0]
# Rounds that a case has however long they take
LEAST_ROUNDS = 3
# Of dense probabilities: with fewer, what a process grows by is mostly not theirs
LEAST_FOR_PEAK = 2**24

Run = Callable[[Tensor, Tensor, Tensor], Tensor]
# Name to a function, and whether it has a gradient of alpha, too
Runs = dict[str, tuple[Run, bool]]
# Name to seconds of each pass
Round = dict[str, dict[str, float]]


def contenders(case: Case) -> Runs:
    """What is timed."""
    scale, allowed = case.scale, case.allowed()
    hidden = None if allowed is None else ~allowed
    # What torch has a kernel of its own for
    only_causal = case.causal and case.padding is None and case.query.shape == case.key.shape

    def scores(query: Tensor, key: Tensor) -> Tensor:
        found = (scale * query) @ key.mT
        return found if hidden is None else found.masked_fill(hidden, -torch.inf)

    def here(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(
            query,
            key,
            value,
            case.epsilon,
            key_padding_mask=case.padding,
            causal=case.causal,
            scale=scale,
        )

    def sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        mask = None if only_causal else allowed
        return scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=only_causal, scale=scale
        )

    def apart(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return map_scores(scores(query, key), 1.0 + case.epsilon.view(-1, 1, 1)) @ value

    def bmm(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.softmax(scores(query, key), -1) @ value

    return {HERE: (here, True), SDPA: (sdpa, False), BMM: (bmm, False), APART: (apart, True)}


def timed(run: Run, case: Case, has_alpha: bool) -> dict[str, float]:
    """Seconds of a forward pass alone, and of one with its backward pass."""
    leaves = [case.query, case.key, case.value]
    wanted = [*leaves, case.epsilon] if has_alpha else leaves
    begin = time.perf_counter()
    with torch.no_grad():
        run(*leaves)
    middle = time.perf_counter()
    torch.autograd.grad(run(*leaves), wanted, case.grad)
    return {"forward": middle - begin, "both": time.perf_counter() - middle}


def kept_bytes(run: Run, case: Case) -> int:
    """What the graph keeps beside its inputs."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run(case.query, case.key, case.value)
    for tensor in case:
        if isinstance(tensor, Tensor):
            kept.pop(tensor.data_ptr(), None)
    return sum(kept.values())


def peak_bytes(run: Run, case: Case) -> int | None:
    """By how much the process grows in a forward and backward pass; None where Linux cannot tell.

    Torch's own record does not see what a kernel in C takes.
    """
    timed(run, case, False)  # what is taken once is there from now on
    try:
        ctypes.CDLL(None).malloc_trim(0)  # what is free is no longer the process's
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the highest is of now
    except (OSError, AttributeError):
        return None
    before = _status("VmRSS")
    timed(run, case, False)
    highest = _status("VmHWM")
    return None if before is None or highest is None else max(0, highest - before)


def _status(field: str) -> int | None:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return None


def facts(case: Case, runs: Runs) -> dict[str, Any]:
    """What does not depend on time: density, the largest error, memory."""
    query, key, value = case.query, case.key, case.value
    allowed = case.allowed()
    with torch.no_grad():
        scores = case.scale * (query @ key.mT)
        if allowed is not None:
            scores = scores.masked_fill(~allowed, -torch.inf)
        probs = map_scores(scores, 1.0 + case.epsilon.view(-1, 1, 1))
        density = (probs > 0).sum().item() / scores.isfinite().sum().item()
        error = (runs[HERE][0](query, key, value) - probs @ value).abs().max().item()
        dense = probs.nbytes
        del scores, probs
    peaks = {
        name: peak_bytes(run, case) if dense >= LEAST_FOR_PEAK else None
        for name, (run, _) in runs.items()
    }
    return {
        **case.about,
        "keys": key.size(2),
        "density": density,
        "error": error,
        "kept": {name: kept_bytes(run, case) / dense for name, (run, _) in runs.items()},
        "peak": {name: None if peak is None else peak / dense for name, peak in peaks.items()},
    }


def one_round(runs: Runs, case: Case, turn: int) -> Round:
    """Seconds of each contender, who take turns."""
    return {name: timed(runs[name][0], case, runs[name][1]) for name in rotated(list(runs), turn)}


def summary(rounds: list[Round]) -> dict[str, Any]:
    """What a row of the results has of its times: medians, and medians of ratios within a round."""
    row: dict[str, Any] = {"threads": torch.get_num_threads(), "rounds": len(rounds)}
    for part in PASSES:
        own = {name: [one[name][part] for one in rounds] for name in rounds[0]}
        row[f"{part}_ms"] = {name: statistics.median(one) * 1e3 for name, one in own.items()}
        row[f"{part}_ratio"] = {name: ratio(one, own[SDPA]) for name, one in own.items()}
        row[f"{part}_to_apart"] = ratio(own[HERE], own[APART])
    return row


def measure(case: Case, rounds: int, seconds: float) -> dict[str, Any]:
    """A row of the results.

    Args:
        case: what is computed.
        rounds: in which each contender has a turn, at most.
        seconds: after which no further round begins, once there were :data:`LEAST_ROUNDS`.
    """
    runs = contenders(case)
    row, end = facts(case, runs), time.perf_counter() + seconds
    one_round(runs, case, 0)  # warms up
    times: list[Round] = []
    while len(times) < rounds and (len(times) < LEAST_ROUNDS or time.perf_counter() < end):
        times.append(one_round(runs, case, len(times)))
    return {**row, **summary(times)}


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Median of the ratios within a round."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def whole_numbers(text: str) -> list[int]:
    """Of such as ``1,4``, each 1 or more."""
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}: give whole numbers from 1 up, such as 1,4")
    return numbers


def cases(options: argparse.Namespace) -> list[Callable[[], Case]]:
    """What makes each; all at once may be more than there is memory for."""
    if options.dumped:
        return [
            lambda path=path, place=place: dumped(path)[place]  # type: ignore[misc]
            for path in options.dumped
            for place in range(len(dumped(path)))
        ]
    return [
        lambda given=(shape, spread, queries, options.alpha): drawn(*given)  # type: ignore[misc]
        for shape in options.shapes
        for queries in options.queries
        for spread in options.spreads
    ]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shapes", nargs="+", default=SHAPES, metavar="SENTENCESxHEADSxTOKENSxSIZE"
    )
    parser.add_argument("--spreads", nargs="+", type=float, default=SPREADS)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--alpha", type=float, default=1.4, help="of all heads, learned")
    parser.add_argument(
        "--dumped", nargs="+", metavar="FILE", help="queries, keys and values of trained models"
    )
    parser.add_argument(
        "--threads",
        type=whole_numbers,
        default=sorted({1, processors()}),
        metavar="N,N",
        help="default: 1, and all there are",
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="for a case, after which no round begins"
    )
    parser.add_argument("--json", metavar="FILE", help="the numbers")
    options = parser.parse_args()
    check_least(parser, options, rounds=1)
    check_positive(parser, options, "spreads")
    check_alpha(parser, options)
    for path in options.dumped or []:
        if not Path(path).is_file():
            parser.error(f"--dumped got {path!r}: there is no such file")
        try:
            dumped(path)
        except ValueError as error:
            parser.error(f"--dumped: {error}")
    for shape in options.shapes:
        try:
            numbers_of(shape)
        except ValueError as error:
            parser.error(f"--shapes {error}")
    return options


def main() -> None:
    options = parsed()
    settings = {**machine(), **vars(options)}
    print(said(settings), flush=True)
    rows: list[dict[str, Any]] = []
    for threads in options.threads:
        torch.set_num_threads(threads)
        for make in cases(options):
            rows.append(measure(make(), options.rounds, options.seconds))
            if options.json:  # after each, so that a run that is stopped has written what it has
                write_json(options.json, {"settings": settings, "results": rows})
    print(f"\n{table(rows)}\n\nHere to sdpa:\n\n{ratios(rows)}\n\n{worst(rows)}")


if __name__ == "__main__":
    main()
