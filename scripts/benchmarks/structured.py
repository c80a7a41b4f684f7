"""What mappings with structure cost, forward and backward, against what else could be taken.

    OMP_NUM_THREADS=1 python scripts/benchmarks/structured.py       # one thread
    python scripts/benchmarks/structured.py --shapes 4096x8 256x1024   # rows x keys
    python scripts/benchmarks/structured.py --tv 1 --spread 0.5     # longer runs
    python scripts/benchmarks/structured.py --device cuda           # torch's operations, on a GPU

Peers of fusedmax: Condat's algorithm and sparsemax in scalar C (condat.c, compiled on the fly by the
C compiler that makes the native kernel), torch's own operations, and the loops of the paper's
package, torchsparseattn, where it is installed:

    pip install cython numpy 'setuptools<70'
    pip install --no-build-isolation --no-deps torchsparseattn

Its functions are those of old torch: what is timed is what they do in a row, without autograd; its
mappings have one alpha, 2, and no sq-pnorm-max. All take turns in every repeat; the table has
medians in milliseconds, nanoseconds a key for both, and times as multiples of this package's fusedmax: of
medians, and last of the fastest of each, which others on the machine disturb less.
Scores are normal with a standard deviation of --spread.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import importlib.util
import re
import shlex
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import torch
from common import check_device, check_least, check_positive, machine, now, rotated, write_json
from torch import Tensor

from fairseq_entmax.kernels import torch_structured
from fairseq_entmax.kernels.backends import Rows
from fairseq_entmax.kernels.native import rows as native_rows
from fairseq_entmax.kernels.native.library import _compiler
from fairseq_entmax.kernels.structure import OSCAR, PLAIN, PNORM, TV

SHAPES = ["30720x30", "8192x128"]  # 1024 x 30 x 30 and 64 x 128 x 128
KERNEL = {"cpu": "native", "cuda": "torch"}
# Of mappings without structure
ROWS = {"cpu": "native", "cuda": "triton"}
CONDAT = Path(__file__).with_name("condat.c")
# What takes seconds is timed no more often
SLOW_SECONDS, SLOW_REPEATS = 0.5, 2


class Contender(NamedTuple):
    """Scores to probabilities; these and their gradient to that of the scores."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor, Tensor], Tensor | None]


def of(backend: Rows, kind: str, epsilon: float, strength: float = 0.0) -> Contender:
    parameters = (kind, epsilon, strength)
    return Contender(
        lambda scores: backend.probabilities(scores, *parameters),
        lambda probs, grad: backend.gradients(probs, *parameters, None, grad, (True, False, False))[
            0
        ],
    )


def scalar(strength: float) -> Contender:
    """Condat's algorithm and sparsemax, of condat.c."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "condat.so")
        flags = [
            "-O3",
            "-march=native",
            "-fno-math-errno",
            "-fno-trapping-math",
            "-shared",
            "-fPIC",
        ]
        command = [*_compiler(), *flags, str(CONDAT), "-o", str(path), "-lm"]
        print(shlex.join([*command[:-4], CONDAT.name]))
        subprocess.run(command, check=True)
        library = ctypes.CDLL(str(path))
    pointer, number = ctypes.c_void_p, ctypes.c_long
    library.forward.argtypes = [pointer] * 2 + [number, ctypes.c_int, ctypes.c_float]
    library.backward.argtypes = [pointer] * 3 + [number, ctypes.c_int]

    def forward(scores: Tensor) -> Tensor:
        probs = torch.empty_like(scores)
        library.forward(scores.data_ptr(), probs.data_ptr(), *scores.shape, strength)
        return probs

    def backward(probs: Tensor, grad: Tensor) -> Tensor:
        result = torch.empty_like(probs)
        library.backward(probs.data_ptr(), grad.data_ptr(), result.data_ptr(), *probs.shape)
        return result

    return Contender(forward, backward)


def torchsparseattn(name: str, options: argparse.Namespace) -> Contender:
    """A mapping of the package: what its functions do in a loop over rows."""
    package = importlib.import_module("torchsparseattn")
    sparsemax = importlib.import_module("torchsparseattn.sparsemax").SparsemaxFunction
    if name == "fused":
        prox, own = package.fused.FusedProxFunction, SimpleNamespace(alpha=options.tv)
    else:
        prox, own = package.oscar.OscarProxFunction, SimpleNamespace(alpha=0, beta=options.oscar)
    kept: list[Tensor] = []

    def forward(scores: Tensor) -> Tensor:
        moved, probs = torch.zeros_like(scores), torch.zeros_like(scores)
        for row in range(len(scores)):
            moved[row] = prox.project(own, scores[row])
        for row in range(len(scores)):
            probs[row] = sparsemax.project(None, moved[row])
        kept[:] = [moved]
        return probs

    def backward(probs: Tensor, grad: Tensor) -> Tensor:
        result = torch.zeros_like(grad)
        for row in range(len(grad)):
            result[row] = sparsemax.project_jv(None, grad[row], probs[row])
        for row in range(len(grad)):
            result[row] = prox.project_jv(own, result[row], kept[0][row])
        return result

    return Contender(forward, backward)


def ours(device: str) -> str:
    """The name of what all are compared with."""
    return f"fusedmax ({KERNEL[device]})"


def contenders(options: argparse.Namespace) -> dict[str, Contender]:
    """Name to what is timed."""
    kernel, of_rows = KERNEL[options.device], ROWS[options.device]
    rows = importlib.import_module(f"fairseq_entmax.kernels.{of_rows}.rows")
    structured = native_rows if options.device == "cpu" else torch_structured
    runs = {
        ours(options.device): of(structured, TV, 1.0, options.tv),
        f"sq-pnorm-max ({kernel})": of(structured, PNORM, options.p - 1.0, 1.0),
        f"sparsemax ({of_rows})": of(rows, PLAIN, 1.0),
        "torch.softmax": Contender(
            lambda scores: torch.softmax(scores, -1),
            lambda probs, grad: torch._softmax_backward_data(grad, probs, -1, probs.dtype),
        ),
        "fusedmax (torch)": of(torch_structured, TV, 1.0, options.tv),
        "oscarmax (torch)": of(torch_structured, OSCAR, 1.0, options.oscar),
        "sq-pnorm-max (torch)": of(torch_structured, PNORM, options.p - 1.0, 1.0),
    }
    if options.device != "cpu":  # oscarmax sorts by torch's operations there, and C has no place
        return runs
    runs["oscarmax (native)"] = of(structured, OSCAR, 1.0, options.oscar)
    runs["fusedmax (Condat, scalar C)"] = scalar(options.tv)
    if importlib.util.find_spec("torchsparseattn"):
        runs["fusedmax (torchsparseattn)"] = torchsparseattn("fused", options)
        runs["oscarmax (torchsparseattn)"] = torchsparseattn("oscar", options)
    else:
        print("torchsparseattn is not installed, and left out: --help says how to get it")
    return runs


def timed(run: Contender, scores: Tensor, grad: Tensor) -> tuple[float, float]:
    """Seconds of a forward and of its backward pass."""
    begin = now(scores)
    probs = run.forward(scores)
    middle = now(scores)
    run.backward(probs, grad)
    return middle - begin, now(scores) - middle


def check_same(runs: dict[str, Contender], scores: Tensor, grad: Tensor) -> None:
    """Raise AssertionError unless all fusedmax give the same."""
    one = runs[ours(scores.device.type)]
    expected = one.forward(scores)
    gradient = one.backward(expected, grad)
    for name, run in runs.items():
        if not name.startswith("fusedmax"):
            continue
        probs = run.forward(scores)
        torch.testing.assert_close(probs, expected, atol=1e-5, rtol=0, msg=name)
        # A tie that is rounded apart changes the gradient of its run
        differs = ((run.backward(probs, grad) - gradient).abs() > 1e-4).any(-1)
        assert differs.float().mean() < 0.01, name


def measure(
    runs: dict[str, Contender], shape: str, options: argparse.Namespace
) -> list[dict[str, Any]]:
    rows, keys = map(int, shape.split("x"))
    torch.manual_seed(0)
    scores, grad = (torch.randn(rows, keys).to(options.device) for _ in range(2))
    scores *= options.spread
    check_same(runs, scores[:200], grad[:200])
    names = list(runs)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    for repeat in range(options.repeats + 1):
        for name in rotated(names, repeat):
            is_slow = sum(map(sum, times[name])) > SLOW_SECONDS
            if is_slow and len(times[name]) >= SLOW_REPEATS:
                continue
            seconds = timed(runs[name], scores, grad)
            if repeat or sum(seconds) > SLOW_SECONDS:  # the first round warms up
                times[name].append(seconds)
    medians = {
        name: [statistics.median(part) for part in zip(*values, strict=True)]
        for name, values in times.items()
    }
    fastest = {name: min(map(sum, values)) for name, values in times.items()}
    own = ours(options.device)
    return [
        {
            "rows": rows,
            "keys": keys,
            "mapping": name,
            "forward_ms": forward * 1e3,
            "backward_ms": backward * 1e3,
            "ns_a_key": (forward + backward) * 1e9 / (rows * keys),
            "forward_ratio": forward / medians[own][0],
            "ratio": (forward + backward) / sum(medians[own]),
            "fastest_ratio": fastest[name] / fastest[own],
        }
        for name, (forward, backward) in medians.items()
    ]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", default=SHAPES, metavar="ROWSxKEYS")
    parser.add_argument("--tv", type=float, default=0.1, help="strength of fusedmax")
    parser.add_argument("--oscar", type=float, default=0.01, help="strength of oscarmax")
    parser.add_argument("--p", type=float, default=1.5, help="of sq-pnorm-max, in (1, 2]")
    parser.add_argument("--spread", type=float, default=1.0, help="standard deviation of scores")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--device", choices=list(KERNEL), default="cpu")
    parser.add_argument("--json", metavar="FILE", default="structured.json", help="the numbers")
    options = parser.parse_args()
    check_device(parser, options.device)
    check_least(parser, options, repeats=1)
    check_positive(parser, options, "spread", "tv", "oscar")
    if not 1 < options.p <= 2:
        parser.error(f"--p must be above 1 and at most 2, not {options.p:g}")
    for shape in options.shapes:
        if not re.fullmatch(r"[1-9]\d*x[1-9]\d*", shape):
            parser.error(f"--shapes got {shape!r}: give ROWSxKEYS, such as 8192x128")
    return options


def main() -> None:
    options = parsed()
    on = f"{torch.get_num_threads()} thread(s)"
    print(torch.cuda.get_device_name() if options.device == "cuda" else on)
    runs = contenders(options)
    results: list[dict[str, Any]] = []
    settings = {**machine(options.device), **vars(options), "threads": torch.get_num_threads()}
    for shape in options.shapes:
        print(f"\n{shape:<28}  forward ms  backward ms  ns a key  forward ratio  ratio  fastest")
        for row in measure(runs, shape, options):
            results.append(row)
            print(
                f"{row['mapping']:<28}  {row['forward_ms']:>10.3f}  {row['backward_ms']:>11.3f}  "
                f"{row['ns_a_key']:>8.1f}  {row['forward_ratio']:>13.2f}  {row['ratio']:>5.2f}  "
                f"{row['fastest_ratio']:>7.2f}"
            )
        # After each, so that a run that is stopped has written what it has
        write_json(options.json, {"settings": settings, "results": results})


if __name__ == "__main__":
    main()
