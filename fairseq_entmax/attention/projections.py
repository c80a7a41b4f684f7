"""Projections of concatenated heads, cut to fewer heads."""

# No `from __future__ import annotations` here: TorchScript reads the annotations of _Bias
import math
from typing import Any

import torch
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn


def keep_first_heads(attention: Any, number: int, q_noise: float, block_size: int) -> None:
    """Cut a fairseq attention to its first heads, whose weights stay as drawn for all heads.

    Without heads, only the bias of the output projection remains.
    """
    attention.num_heads = number
    if number == 0:
        # Not empty parameters: distributed training waits for the gradient of every parameter
        attention.q_proj, attention.k_proj, attention.v_proj = (nn.Identity() for _ in range(3))
        attention.out_proj = _Bias(attention.out_proj.bias, attention.embed_dim)
        return
    rows = number * attention.head_dim
    for projection in (attention.q_proj, attention.k_proj, attention.v_proj):
        projection.weight = nn.Parameter(projection.weight.detach()[:rows].clone())
        if projection.bias is not None:
            projection.bias = nn.Parameter(projection.bias.detach()[:rows].clone())
        projection.out_features = rows
    output = attention.out_proj
    output.weight = nn.Parameter(output.weight.detach()[:, :rows].clone())
    output.in_features = rows
    if q_noise and rows % block_size:
        # The blocks do not divide this width: use smaller ones
        output._forward_pre_hooks.clear()
        attention.out_proj = quant_noise(output, q_noise, math.gcd(block_size, rows))


class _Bias(nn.Module):
    """A linear layer without inputs: it returns its bias, or zeros."""

    zeros: Tensor

    def __init__(self, bias: nn.Parameter | None, size: int) -> None:
        super().__init__()
        self.bias: nn.Parameter | None = bias
        self.register_buffer("zeros", torch.zeros(size), persistent=False)

    def forward(self) -> Tensor:
        return self.zeros if self.bias is None else self.bias
