"""Times attention on a GPU, forward and backward, fused and not, against its peers.

    python scripts/benchmarks/fused_attention.py                                # the shapes of translation
    python scripts/benchmarks/fused_attention.py --lengths 2048 --dtypes bf16 --causal

Heads are those of transformer_iwslt_de_en (4 of 128) and transformer_wmt_en_de (8 of 64). The length
of sentences changes, the number of tokens in a batch does not; scores have a standard deviation of
--spread. Peers: torch's scaled_dot_product_attention (softmax) with the kernel that torch chooses, and
with each of flash attention, cuDNN's and the memory-efficient one; entmax_bisect of the package entmax
between two matrix products, with a gradient for alpha; and adasplash at alpha = 1.5, if these packages
are installed (pip install entmax adasplash). All take turns in every repeat. The table has medians in
milliseconds, the memory that a pass takes on top of its inputs, and the largest error, in one sentence
against float64, of the output and of the gradient of the queries. --device cpu runs Triton's
interpreter, to try the script.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import itertools
import os
from collections.abc import Callable
from typing import Any

import common
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from fairseq_entmax import kernels
from fairseq_entmax.mappings.functional import map_scores

HEADS = {"iwslt_de_en": (4, 128), "wmt_en_de": (8, 64)}
HERE, PEER = "fused, learned alpha", "softmax, torch's choice"
# Torch's names of its kernels, of which an old torch lacks some
SOFTMAX = {
    "softmax, flash": "FLASH_ATTENTION",
    "softmax, cudnn": "CUDNN_ATTENTION",
    "softmax, efficient": "EFFICIENT_ATTENTION",
}
LENGTHS = [30, 60, 128, 512, 2048]
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
COLUMNS = {
    "attention": ("attention", ""),
    "forward ms": ("forward_ms", ".3f"),
    "backward ms": ("backward_ms", ".3f"),
    "peak MiB": ("peak_mib", ".1f"),
    "output error": ("output_error", ".1e"),
    "gradient error": ("query_grad_error", ".1e"),
}
Attention = Callable[[Tensor, Tensor, Tensor], Tensor]


def scores_of(query: Tensor, key: Tensor, causal: bool) -> Tensor:
    scores = query @ key.mT * query.size(-1) ** -0.5
    if causal:
        ones = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(ones.triu(1), -torch.inf)
    return scores


def unfused(alpha: float | Tensor, backend: str, causal: bool) -> Attention:
    """Attention without a fused kernel: scores and probabilities are in memory."""

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        os.environ[kernels.VARIABLE] = backend
        return map_scores(scores_of(query, key, causal), alpha).to(value.dtype) @ value

    return run


def bisected(alpha: Tensor, causal: bool) -> Attention:
    """Attention as a user of the package entmax writes it."""
    package = importlib.import_module("entmax")

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        # Bisection does not support half precision
        scores = scores_of(query, key, causal).float()
        return package.entmax_bisect(scores, alpha, dim=-1).to(value.dtype) @ value

    return run


def softmax(causal: bool, backend: Any = None) -> Attention:
    """Torch's attention, with the kernel that it chooses, or with a given one."""

    def run(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        only = contextlib.nullcontext() if backend is None else sdpa_kernel(backend)
        with only:
            return scaled_dot_product_attention(query, key, value, is_causal=causal)

    return run


def fused(epsilon: float | Tensor, causal: bool) -> Attention:
    attention = importlib.import_module("fairseq_entmax.kernels.triton.attention").attention
    return lambda query, key, value: attention(
        query, key, value, epsilon, causal=causal, scale=query.size(-1) ** -0.5
    )


def adasplash(length: int, batch: int, causal: bool, device: str) -> Attention:
    """Attention of adasplash, which takes lengths other than powers of two only as padded ones."""
    package = importlib.import_module("adasplash")
    lengths = None
    if length & (length - 1):
        lengths = torch.full((batch,), length, dtype=torch.int32, device=device)
    return lambda query, key, value: package.adasplash(
        query, key, value, alpha=1.5, is_causal=causal, varlen=lengths
    )


def contenders(
    heads: int, length: int, batch: int, causal: bool, device: str
) -> dict[str, tuple[Attention, float | Tensor]]:
    """From names to a function, and the alpha of its expected output."""
    # One alpha for each head, between 1 and 2
    alpha = torch.linspace(1.2, 1.8, heads, device=device).requires_grad_()
    of_rows = alpha.view(heads, 1, 1)
    runs: dict[str, tuple[Attention, float | Tensor]] = {
        "fused, learned alpha": (lambda q, k, v: fused(alpha - 1.0, causal)(q, k, v), of_rows),
        "fused, alpha 1.5": (fused(0.5, causal), 1.5),
        "unfused, learned alpha": (unfused(of_rows, kernels.TRITON, causal), of_rows),
        "unfused, alpha 1.5": (unfused(1.5, kernels.TRITON, causal), 1.5),
        "unfused, learned alpha (torch)": (unfused(of_rows, kernels.TORCH, causal), of_rows),
        PEER: (softmax(causal), 1.0),
    }
    for name, backend in SOFTMAX.items():
        if hasattr(SDPBackend, backend):
            runs[name] = (softmax(causal, getattr(SDPBackend, backend)), 1.0)
    if importlib.util.find_spec("entmax"):
        runs["unfused, entmax_bisect"] = (bisected(of_rows, causal), of_rows)
    if device == "cuda" and importlib.util.find_spec("adasplash"):
        runs["adasplash, alpha 1.5"] = (adasplash(length, batch, causal, device), 1.5)
    return runs


def errors(
    run: Attention, alpha: float | Tensor, inputs: list[Tensor], grad: Tensor, causal: bool
) -> tuple[float, float]:
    """The largest errors of the output and of the queries' gradient, in the first sentence."""
    narrow = [tensor.detach().requires_grad_() for tensor in inputs]
    in_double = [tensor[:1].detach().double().requires_grad_() for tensor in inputs]
    output, truth = run(*narrow), unfused(alpha, kernels.TORCH, causal)(*in_double)
    output.backward(grad, retain_graph=True)
    truth.backward(grad[:1].double(), retain_graph=True)
    of_output = (output[:1].double() - truth).abs().max().item()
    own, true = narrow[0].grad, in_double[0].grad
    assert own is not None
    assert true is not None
    return of_output, (own[:1].double() - true).abs().max().item()


def density(query: Tensor, key: Tensor, alpha: float | Tensor, causal: bool) -> float:
    """The share of keys that get a weight, among those that a query may see."""
    os.environ[kernels.VARIABLE] = kernels.TORCH
    with torch.no_grad():
        scores = scores_of(query, key, causal)
        weights = map_scores(scores, alpha)
    return (weights > 0).sum().item() / scores.isfinite().sum().item()


def measure(
    heads: int, head_dim: int, length: int, dtype: torch.dtype, options: Any, device: str
) -> list[dict[str, Any]]:
    torch.manual_seed(0)
    batch = max(1, options.tokens // length)
    shape = (batch, heads, length, head_dim)
    query, key, value, grad = (torch.randn(shape, device=device) for _ in range(4))
    query *= options.spread
    inputs = [tensor.to(dtype) for tensor in (query, key, value)]
    grad = grad.to(dtype)
    runs = contenders(heads, length, batch, options.causal, device)
    rows: dict[str, dict[str, Any]] = {}
    about = {"density": density(query[:1], key[:1], runs[HERE][1], options.causal)}
    for name, (run, alpha) in runs.items():
        try:
            of_output, of_grad = errors(run, alpha, inputs, grad, options.causal)
            peak = None  # Triton's interpreter on a CPU is not asked
            if device == "cuda":
                peak = (
                    common.peak_bytes(lambda run=run: common.timed(run, inputs, grad, True), device)
                    / 2**20
                )
            rows[name] = {
                "attention": name,
                **about,
                "peak_mib": peak,
                "output_error": of_output,
                "query_grad_error": of_grad,
            }
        except Exception as error:  # a peer that does not support a shape, or lacks memory for it
            if "fused" in name and not isinstance(error, torch.OutOfMemoryError):
                raise
            print(f"{name} does not run: {str(error).splitlines()[:1]}")
    # All passes share one view of alpha, so its graph is kept
    times = common.in_turns(
        [*rows], options.repeats, lambda name, _: common.timed(runs[name][0], inputs, grad, True)
    )
    for name, values in times.items():
        rows[name]["forward_ms"], rows[name]["backward_ms"] = common.medians_ms(values)
    return list(rows.values())


def main() -> None:
    parser = common.arguments(__doc__, "fused_attention.json")
    parser.add_argument("--models", nargs="+", choices=list(HEADS), default=list(HEADS))
    parser.add_argument("--lengths", nargs="+", type=common.positive, default=LENGTHS)
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=list(DTYPES))
    parser.add_argument("--tokens", type=common.positive, default=16384, help="tokens in a batch")
    parser.add_argument("--spread", type=float, default=2.0, help="standard deviation of scores")
    parser.add_argument("--device", type=common.device, default="cuda")
    parser.add_argument("--causal", action="store_true", help="as in decoder self-attention")
    parser.add_argument("--repeats", type=common.positive, default=20)
    options = parser.parse_args()
    if options.device == "cpu":  # read when Triton is first imported
        os.environ.setdefault("TRITON_INTERPRET", "1")
    settings = {**common.machine(options.device), **vars(options)}
    print(common.machine_line(settings))
    results: list[dict[str, Any]] = []
    for model, name, length in itertools.product(options.models, options.dtypes, options.lengths):
        rows = measure(*HEADS[model], length, DTYPES[name], options, options.device)
        results += [{"model": model, "dtype": name, "length": length, **row} for row in rows]
        print(f"\n{model}, {name}, length {length}\n{common.table(rows, COLUMNS)}", flush=True)
        # After each case, so that a run that is stopped has written its results
        common.write_json(options.json, settings, results=results)


if __name__ == "__main__":
    main()
