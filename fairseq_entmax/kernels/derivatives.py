"""Gradients of alpha-entmax in operations that autograd can follow, for second derivatives.

Kernels compute gradients in a way that autograd cannot follow, and so does
:mod:`fairseq_entmax.kernels.torch_ops` that of alpha. With ``create_graph=True`` backward passes
use these functions instead: the same formulas, but slower and with more memory. They are written in
terms of the probabilities p, whose derivative is that of the mapping: gradients of any order are
correct.

The derivative of s = p ** (1 - epsilon) contains p ** -epsilon, which grows without bound towards
the edge of the support, as second derivatives of the mapping do above alpha = 1.5. Outside the
support they are 0.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# 1/2!, -1/3!, ... of the series of phi(x) = (exp(-x) - 1 + x) / x**2. Near 0 its closed form loses
# digits, and the derivative of the closed form loses more.
PHI_COEFFICIENTS = tuple((-1.0) ** k / math.factorial(k + 2) for k in range(14))
PHI_SERIES_BELOW = 0.5


def scores_gradient(probs: Tensor, epsilon: float | Tensor, grad: Tensor) -> Tensor:
    """Gradient with respect to the scores (Correia et al. 2019, eq. 7); zero outside the support."""
    sensitivity = _sensitivity(probs, epsilon)
    moved = sensitivity * grad
    total = sensitivity.sum(-1, keepdim=True)
    mean = moved.sum(-1, keepdim=True) / torch.where(total == 0, 1.0, total)
    return moved - sensitivity * mean


def _sensitivity(probs: Tensor, epsilon: float | Tensor) -> Tensor:
    """``p ** (1 - epsilon)`` on the support, zero elsewhere; NaN stays NaN."""
    if isinstance(epsilon, float) and epsilon == 0.0:
        return probs
    if isinstance(epsilon, float) and epsilon == 1.0:
        return torch.ceil(probs)  # 1 on the support; NaN stays NaN, unlike with sign
    # Not a power: torch treats p ** 0 as a constant even if the exponent is a variable
    power = (_logs(probs) * (1.0 - epsilon)).exp()
    return torch.where(probs > 0, power, probs.detach())


def _logs(probs: Tensor) -> Tensor:
    """``log p`` on the support, 0 elsewhere."""
    tiny = torch.finfo(probs.dtype).tiny
    return torch.where(probs > 0, probs, 1.0).clamp(min=tiny).log()


def alpha_gradient(probs: Tensor, epsilon: float | Tensor, grad: Tensor) -> Tensor:
    """As :func:`fairseq_entmax.kernels.torch_ops.alpha_gradient`."""
    centred = grad - (probs * grad).sum(-1, keepdim=True)
    logs = _logs(probs)
    weight = probs * logs * logs * _phi(epsilon * logs)
    entropy = -(probs * logs).sum(-1, keepdim=True)
    mean_weight = weight.sum(-1, keepdim=True)
    moved = probs * centred * (1.0 - epsilon * logs)
    above = 1.0 + epsilon * entropy
    result = mean_weight * moved.sum(-1, keepdim=True)
    result = result - above * (weight * centred).sum(-1, keepdim=True)
    return result / (above + epsilon * epsilon * mean_weight)


def _phi(x: Tensor) -> Tensor:
    """``(exp(-x) - 1 + x) / x**2`` for x <= 0, 1/2 at 0."""
    is_near = x > -PHI_SERIES_BELOW
    # Each formula gets only its own numbers, so that values that are not taken have no gradient
    near, far = torch.where(is_near, x, 0.0), torch.where(is_near, -1.0, x)
    series = torch.full_like(near, PHI_COEFFICIENTS[-1])
    for coefficient in reversed(PHI_COEFFICIENTS[:-1]):
        series = series * near + coefficient
    return torch.where(is_near, series, (torch.expm1(-far) + far) / (far * far))
