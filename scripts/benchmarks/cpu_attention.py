"""Times attention on a CPU, forward alone and with its backward pass, against softmax attention.

    python scripts/benchmarks/cpu_attention.py                     # one and all threads: half an hour
    python scripts/benchmarks/cpu_attention.py --threads 1 --shapes 1x8x1024x64 --spreads 1.5

These take turns in one process: this package's whole attention with a learned alpha for each head
("here"), torch's scaled_dot_product_attention ("sdpa"), softmax between two matrix products ("bmm"),
and this package's mapping between them ("apart"). Keys and values are N(0, 1), and queries are N(0, 1)
times the spread, which is then the standard deviation of the scores; smooth queries resemble their
neighbours, as in a text. The table has medians in milliseconds and, in brackets, medians of the ratios
to sdpa within a round; the density, which is the share of keys that get a weight; and the memory kept
for the backward pass, in multiples of the dense probabilities.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import common
import torch
from attention_inputs import QUERIES, Case, drawn, shape_of
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fairseq_entmax.kernels.native.attention import attention
from fairseq_entmax.mappings.functional import map_scores

SHAPES = ["32x4x32x32", "8x8x64x64", "8x8x128x64", "4x8x512x64", "1x8x1024x64", "1x8x2048x64"]
SPREADS = [0.5, 1.5, 4.0]
HERE, SDPA, BMM, APART = NAMES = ("here", "sdpa", "bmm", "apart")
PASSES = {"forward": "forward", "both": "forward + backward"}
# The rounds of a case, however long they take
LEAST_ROUNDS = 3

Run = Callable[[Tensor, Tensor, Tensor], Tensor]
# From name to seconds of each pass
Round = dict[str, dict[str, float]]


def contenders(case: Case) -> dict[str, Run]:
    """The attentions that are timed, by name."""

    def here(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return attention(query, key, value, case.epsilon, scale=case.scale)

    def sdpa(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return scaled_dot_product_attention(query, key, value, scale=case.scale)

    def bmm(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.softmax((case.scale * query) @ key.mT, -1) @ value

    def apart(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return map_scores((case.scale * query) @ key.mT, case.alpha()) @ value

    return {HERE: here, SDPA: sdpa, BMM: bmm, APART: apart}


def timed(name: str, run: Run, case: Case) -> dict[str, float]:
    """Seconds of a forward pass alone, and of one with a backward pass."""
    leaves = [case.query, case.key, case.value]
    wanted = [*leaves, case.epsilon] if name in (HERE, APART) else leaves
    begin = time.perf_counter()
    with torch.no_grad():
        run(*leaves)
    middle = time.perf_counter()
    torch.autograd.grad(run(*leaves), wanted, case.grad)
    return {"forward": middle - begin, "both": time.perf_counter() - middle}


def saved_bytes(run: Run, case: Case) -> int:
    """The bytes that the graph keeps besides its inputs."""
    saved: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        saved[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run(case.query, case.key, case.value)
    for tensor in case:
        if isinstance(tensor, Tensor):
            saved.pop(tensor.data_ptr(), None)
    return sum(saved.values())


def facts(case: Case, runs: dict[str, Run]) -> dict[str, Any]:
    """The numbers that do not depend on time: density, the largest error, memory."""
    inputs = (case.query, case.key, case.value)
    with torch.no_grad():
        scores = (case.scale * case.query) @ case.key.mT
        probs = map_scores(scores, case.alpha())
        error = (runs[HERE](*inputs) - probs @ case.value).abs().max().item()
    return {
        **case.about,
        "keys": case.key.size(2),
        "density": (probs > 0).float().mean().item(),
        "error": error,
        "kept": {name: saved_bytes(run, case) / probs.nbytes for name, run in runs.items()},
    }


def summary(rounds: Sequence[Round]) -> dict[str, Any]:
    """The times in a row of results: medians, and medians of ratios within a round."""
    row: dict[str, Any] = {"threads": torch.get_num_threads(), "rounds": len(rounds)}
    for part in PASSES:
        own = {name: [one[name][part] for one in rounds] for name in rounds[0]}
        row[f"{part}_ms"] = {name: statistics.median(one) * 1e3 for name, one in own.items()}
        row[f"{part}_ratio"] = {
            name: common.median_ratio(one, own[SDPA]) for name, one in own.items()
        }
    return row


def measure(points: Sequence[tuple[int, Case]], rounds: int, seconds: float) -> list[dict]:
    """Rows of results; points take turns by rounds, so that other load affects all of them alike.

    Args:
        points: the number of threads, and the inputs.
        rounds: the most rounds, in each of which every contender has a turn.
        seconds: the time for a point, after which no further round begins, once there were
            :data:`LEAST_ROUNDS`.
    """
    runs = [contenders(case) for _, case in points]
    rows = [facts(case, own) for (_, case), own in zip(points, runs, strict=True)]
    times: list[list[Round]] = [[] for _ in points]
    end = time.perf_counter() + seconds * len(points)
    for turn in range(rounds + 1):
        if turn > LEAST_ROUNDS and time.perf_counter() > end:
            break
        for (threads, case), own, taken in zip(points, runs, times, strict=True):
            torch.set_num_threads(threads)
            one = {name: timed(name, own[name], case) for name in common.rotated(list(own), turn)}
            if turn:  # the first warms up
                taken.append(one)
    for (threads, _), row, taken in zip(points, rows, times, strict=True):
        torch.set_num_threads(threads)
        row |= summary(taken)
    return rows


def shown(rows: Sequence[dict[str, Any]], names: Sequence[str] = NAMES) -> str:
    """The table: milliseconds, and ratios to sdpa in brackets."""
    cells = []
    for row in rows:
        cell = {**row, "kept": row["kept"][HERE]}
        for part in PASSES:
            for name in names:
                milliseconds, ratio = row[f"{part}_ms"][name], row[f"{part}_ratio"][name]
                cell[f"{part} {name}"] = f"{milliseconds:.2f} ({ratio:.2f})"
        cells.append(cell)
    columns = {"shape": ("shape", ""), "queries": ("queries", ""), "spread": ("spread", "g")}
    columns |= {"α": ("alpha", "g"), "threads": ("threads", ""), "density": ("density", ".3f")}
    columns |= {
        f"{title}: {name}": (f"{part} {name}", "")
        for part, title in PASSES.items()
        for name in names
    }
    return common.table(cells, {**columns, "kept": ("kept", ".3f")})


def cases(options: argparse.Namespace) -> list[Callable[[], Case]]:
    """Functions that make the cases, as all cases at once may not fit into memory."""
    return [
        lambda given=(shape, spread, queries, options.alpha): drawn(*given)  # type: ignore[misc]
        for shape in options.shapes
        for queries in options.queries
        for spread in options.spreads
    ]


def main() -> None:
    parser = common.arguments(__doc__)
    parser.add_argument(
        "--shapes",
        nargs="+",
        default=[*map(shape_of, SHAPES)],
        type=shape_of,
        metavar="SENTENCESxHEADSxTOKENSxSIZE",
    )
    parser.add_argument("--spreads", nargs="+", type=float, default=SPREADS)
    parser.add_argument("--queries", nargs="+", choices=QUERIES, default=list(QUERIES))
    parser.add_argument("--alpha", type=float, default=1.4, help="learned alpha of all heads")
    parser.add_argument(
        "--threads",
        nargs="+",
        type=common.positive,
        default=sorted({1, common.processors()}),
        metavar="N",
        help="numbers of threads (default: 1, and one per core)",
    )
    parser.add_argument("--rounds", type=common.positive, default=15)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="time for a case, after which no round begins"
    )
    options = parser.parse_args()
    settings = {**common.machine(), **vars(options)}
    print(common.machine_line(settings), flush=True)
    rows: list[dict[str, Any]] = []
    for threads in options.threads:
        for make in cases(options):
            rows += measure([(threads, make())], options.rounds, options.seconds)
            # After each case, so that a run that is stopped has written its results
            common.write_json(options.json, settings, results=rows)
    print(shown(rows))


if __name__ == "__main__":
    main()
