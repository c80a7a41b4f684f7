"""Alpha-entmax in operations that TorchScript and ONNX have, for inference only.

:mod:`fairseq_entmax.kernels.torch_ops` works in place and branches on Python types, which neither
of them can do. A module scripted from these functions can be loaded without this package.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from fairseq_entmax.kernels.torch_ops import MOST_ITERATIONS


def softmax_rows(scores: Tensor) -> Tensor:
    """Softmax along the last dimension; zeros if every key is masked with ``-inf``."""
    is_masked = scores.amax(-1, keepdim=True) == -math.inf
    return torch.softmax(scores, -1).masked_fill(is_masked, 0.0)


def entmax_rows(scores: Tensor, epsilon: Tensor, steps: int = MOST_ITERATIONS) -> Tensor:
    """Alpha-entmax along the last dimension, by Newton's method on the threshold.

    The iteration is that of :func:`fairseq_entmax.kernels.torch_ops.probabilities`. When traced, it
    takes all of its steps, because the trace must work for other scores too. Epsilon, above 0,
    broadcasts with a last dimension of size 1.
    """
    top = scores.amax(-1, keepdim=True)
    # A row with every key masked has no largest score to subtract
    scaled = (scores - top.masked_fill(top == -math.inf, 0.0)) * epsilon
    tolerance = 1e-12 if scores.dtype == torch.float64 else 1e-6
    tau = torch.zeros_like(top)
    probs = torch.zeros_like(scaled)
    total = torch.zeros_like(top)
    for step in range(steps):
        base = (scaled - tau).clamp(min=-1.0)
        # log1p, not log: its rounding error is divided by epsilon
        probs = torch.exp(torch.log1p(base) / epsilon)
        total = probs.sum(-1, keepdim=True)
        excess = total.clamp(min=1.0)
        if step == steps - 1 or _is_solved(excess, tolerance):
            break
        slope = (probs / (base + 1.0).clamp(min=1e-30)).sum(-1, keepdim=True).clamp(min=1e-30)
        # ONNX has no expm1: e**x - 1 = (e**x + 1) tanh(x / 2)
        power = epsilon * torch.log(excess)
        moved = (torch.exp(-power) + 1.0) * torch.tanh(power / 2.0)
        tau = tau + moved * excess / slope
    return probs / torch.where(total == 0.0, torch.ones_like(total), total)


def _is_solved(excess: Tensor, tolerance: float) -> bool:
    """Whether every row sums to 1; False while operations are recorded, or to avoid a GPU wait."""
    # A scripted loop remains a loop when it is traced
    if not torch.jit.is_scripting():  # noqa: SIM102 - TorchScript skips what is below this
        if torch.jit.is_tracing() or torch.compiler.is_compiling():
            return False
    return not excess.is_cuda and bool((excess <= 1.0 + tolerance).all())
