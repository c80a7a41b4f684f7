"""What attention costs on a CPU, forward and with its backward pass, against softmax's.

    python scripts/benchmarks/cpu_attention.py --threads 1
    python scripts/benchmarks/cpu_attention.py --shapes 1x8x1024x64 --spreads 0.5 1.5 4 --smooth

In turns in one process: the whole of attention here with a learned alpha for each head, torch's
scaled_dot_product_attention, and apart: scores, mapping and weighted sum, with the mapping of this
package and with softmax. Keys and values are N(0, 1), queries that times the spread; --smooth makes 16
queries in a row resemble each other, as neighbours in a text do. The table has medians in milliseconds,
and the median of the ratios to scaled_dot_product_attention within a round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from fairseq_entmax.kernels.native.attention import attention
from fairseq_entmax.mappings.functional import map_scores

SHAPES = ["32x4x32x32", "8x8x64x64", "8x8x128x64", "4x8x512x64", "1x8x1024x64", "1x8x2048x64"]
HERE, PEER = "here", "sdpa"
# Queries that resemble each other, and what of them is their own
NEIGHBOURS, OWN = 16, 0.3

Run = Callable[[Tensor, Tensor, Tensor], Tensor]


def contenders(epsilon: Tensor, scale: float) -> dict[str, tuple[Run, bool]]:
    """Name to a function, and whether it has a gradient of alpha, too."""
    of_rows = (1.0 + epsilon).view(-1, 1, 1)

    def apart(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return map_scores(scale * (query @ key.mT), of_rows) @ value

    return {
        HERE: (lambda q, k, v: attention(q, k, v, epsilon, scale=scale), True),
        PEER: (scaled_dot_product_attention, False),
        "apart": (apart, True),
        "softmax apart": (lambda q, k, v: torch.softmax(scale * (q @ k.mT), -1) @ v, False),
    }


def drawn(shape: tuple[int, ...], spread: float, smooth: bool) -> list[Tensor]:
    """Query, key and value, and a gradient of the output."""
    torch.manual_seed(0)
    query, key, value, grad = (torch.randn(shape) for _ in range(4))
    if smooth:
        batch, heads, length, size = shape
        common = torch.randn(batch, heads, -(-length // NEIGHBOURS), size)
        common = common.repeat_interleave(NEIGHBOURS, 2)[:, :, :length]
        query = (1 - OWN**2) ** 0.5 * common + OWN * query
    return [(spread * query).requires_grad_(), key.requires_grad_(), value.requires_grad_(), grad]


def timed(run: Run, inputs: list[Tensor], wanted: list[Tensor]) -> tuple[float, float]:
    """Seconds of a forward pass alone, and of one with its backward pass."""
    *leaves, grad = inputs
    begin = time.perf_counter()
    with torch.no_grad():
        run(*leaves)
    middle = time.perf_counter()
    torch.autograd.grad(run(*leaves), wanted, grad)
    return middle - begin, time.perf_counter() - middle


def kept_bytes(run: Run, inputs: list[Tensor]) -> int:
    """What the graph keeps beside its inputs."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        run(*inputs[:3])
    for tensor in inputs:
        kept.pop(tensor.data_ptr(), None)
    return sum(kept.values())


def measure(shape: str, spread: float, options: argparse.Namespace) -> dict[str, Any]:
    batch, heads, length, size = (int(number) for number in shape.split("x"))
    inputs = drawn((batch, heads, length, size), spread, options.smooth)
    epsilon = torch.full((heads,), options.alpha - 1.0).requires_grad_()
    scale = size**-0.5
    runs = contenders(epsilon, scale)
    with torch.no_grad():
        query, key, value, _ = inputs
        probs = map_scores(scale * (query @ key.mT), (1.0 + epsilon).view(-1, 1, 1))
        density = (probs > 0).float().mean().item()
        error = (runs[HERE][0](query, key, value) - probs @ value).abs().max().item()
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in runs}
    for round_number in range(options.rounds + 1):
        for name, (run, has_alpha) in runs.items():
            passed = timed(run, inputs, [*inputs[:3], epsilon] if has_alpha else inputs[:3])
            if round_number:  # the first warms up
                times[name].append(passed)
    row: dict[str, Any] = {"shape": shape, "spread": spread, "density": density, "error": error}
    row["kept"] = kept_bytes(runs[HERE][0], inputs) / (4 * batch * heads * length * length)
    for place, name in enumerate(("forward", "both")):
        for contender, values in times.items():
            own = [value[place] for value in values]
            peer = [value[place] for value in times[PEER]]
            row[f"{name} ms {contender}"] = statistics.median(own) * 1e3
            ratios = [a / b for a, b in zip(own, peer, strict=True)]
            row[f"{name} ratio {contender}"] = statistics.median(ratios)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--shapes", nargs="+", default=SHAPES, help="sentences x heads x tokens x size"
    )
    parser.add_argument("--spreads", nargs="+", type=float, default=[1.5])
    parser.add_argument("--alpha", type=float, default=1.4, help="of all heads, learned")
    parser.add_argument(
        "--smooth", action="store_true", help="queries that resemble their neighbours"
    )
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(
        f"torch {torch.__version__}, {options.threads} threads, alpha {options.alpha}; ms and (ratio)"
    )
    rows = []
    for shape in options.shapes:
        for spread in options.spreads:
            row = measure(shape, spread, options)
            rows.append(row)
            names = (HERE, PEER, "apart", "softmax apart")
            for name in ("forward", "both"):
                cells = "  ".join(
                    f"{one} {row[f'{name} ms {one}']:.2f} ({row[f'{name} ratio {one}']:.2f})"
                    for one in names
                )
                print(
                    f"{shape:<12} spread {spread:g} density {row['density']:.3f} {name:<7} {cells}"
                )
            print(
                f"{'':<12} kept for the backward pass, times dense probabilities: {row['kept']:.3f}; "
                f"largest error {row['error']:.0e}",
                flush=True,
            )
    if options.json:
        Path(options.json).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
