"""The mapping in torch's own operations: the threshold of alpha-entmax, and its derivative in alpha.

Everything here works on the last dimension, in float32 or float64, and writes
``epsilon = alpha - 1``, as the derivation does: with a threshold ``theta`` in units of
the scores,

    p_i = [1 + epsilon (z_i - theta)]_+ ** (1 / epsilon)        sum_i p_i = 1,

which is eq. 6 of Correia et al. 2019 with ``tau = epsilon theta - 1``, but has no
singularity at ``epsilon = 0``, where it is softmax. ``epsilon`` is a Python number, the
same for all rows, or a tensor that broadcasts against the scores with a last dimension
of size 1.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

# The smallest epsilon that is computed with. It is far below the resolution of alpha, so
# that it changes no digit, and keeps 1 / epsilon and epsilon * score inside float32.
SMALLEST_EPSILON = 1e-20

# Newton's iteration stops once every row sums to at most 1 + tolerance, or after this
# number of steps, which some rows constructed to be hard need; random ones need 3 to 10.
# If reading a value would make the program wait for a device, all steps are made.
TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12}
MOST_ITERATIONS = 20

# 1/2!, -1/3!, ... of the series of phi(x) = (exp(-x) - 1 + x) / x**2.
PHI_COEFFICIENTS = tuple((-1.0) ** k / math.factorial(k + 2) for k in range(8))
PHI_SERIES_BELOW = 0.1


def probabilities(scores: Tensor, epsilon: float | Tensor) -> Tensor:
    """Map scores to alpha-entmax probabilities along the last dimension.

    Newton's method on ``(sum_i p_i) ** epsilon - 1``, which is convex and decreasing in
    the threshold: started at the largest score it climbs to the root and never passes it.

    ``-inf`` marks a masked key. A row with every key masked is all zeros. Any other is all NaN if
    its epsilon is NaN, or if a score is NaN or ``+inf``.
    """
    if scores.numel() == 0:
        return torch.zeros_like(scores)
    top = scores.amax(-1, keepdim=True)
    masked_row = top == -math.inf
    if isinstance(epsilon, float) and epsilon == 0.0:
        return torch.softmax(scores, -1).masked_fill_(masked_row, 0.0)
    if not isinstance(epsilon, Tensor) and math.isnan(epsilon):
        epsilon = top.new_full((1,), epsilon)
    without: Tensor | None = None
    if isinstance(epsilon, Tensor):
        # Rows whose epsilon is NaN are solved with another, then set to NaN
        without = epsilon.isnan()
        epsilon = epsilon.clamp(min=SMALLEST_EPSILON).masked_fill_(without, 1.0)
    else:
        epsilon = max(epsilon, SMALLEST_EPSILON)
    return _newton(scores - top.masked_fill(masked_row, 0.0), epsilon, without)


def _newton(scaled: Tensor, epsilon: float | Tensor, without: Tensor | None) -> Tensor:
    """The iteration itself, on scores whose largest is 0; they are overwritten.

    Rows ``without`` an epsilon become NaN, unless every key is masked.
    """
    scaled.mul_(epsilon)
    # tau = epsilon * (theta - max): the threshold of the scaled scores
    tau = torch.zeros_like(scaled[..., :1])
    base = torch.empty_like(scaled)
    probs = torch.empty_like(scaled)
    may_look = scaled.device.type == "cpu"
    for iteration in range(MOST_ITERATIONS):
        torch.sub(scaled, tau, out=base).clamp_(min=-1.0)
        slope = _power(base, epsilon, probs)
        total = probs.sum(-1, keepdim=True)
        # Rounding may leave a sum a little below one, and an all-masked row sums to zero:
        # neither may move.
        excess = total.clamp(min=1.0)
        # A NaN row counts as converged, so that other rows need not wait for it
        converged = may_look and not (excess > 1.0 + TOLERANCE[scaled.dtype]).any()
        if converged or iteration == MOST_ITERATIONS - 1:
            break
        step = torch.log(excess).mul_(epsilon).neg_().expm1_().neg_()
        moved = tau + step.mul_(excess).div_(slope)
        if may_look and not (moved > tau).any():  # too little to change a threshold
            break
        tau = moved
    if without is not None:
        total = torch.where(without & (total != 0), math.nan, total)
    return probs.div_(torch.where(total == 0, 1.0, total))


def _power(base: Tensor, epsilon: float | Tensor, out: Tensor) -> Tensor:
    """Write ``u ** (1/epsilon)`` into ``out``, where ``base = u - 1 >= -1``.

    ``base`` is overwritten. Returns ``sum_i p_i / u_i`` over the support, kept above zero.
    """
    tiny = torch.finfo(base.dtype).tiny
    if isinstance(epsilon, float) and epsilon == 1.0:
        torch.add(base, 1.0, out=out)
        torch.sign(out, out=base)
        return base.sum(-1, keepdim=True).clamp_(min=tiny)
    if isinstance(epsilon, float) and epsilon == 0.5:
        base.add_(1.0)
        torch.mul(base, base, out=out)
        return base.sum(-1, keepdim=True).clamp_(min=tiny)
    # log1p, not log: u is close to 1 if epsilon is small, and its rounding error would be
    # divided by epsilon.
    torch.log1p(base, out=out).div_(epsilon).exp_()
    torch.div(out, base.add_(1.0).clamp_(min=tiny), out=base)
    return base.sum(-1, keepdim=True).clamp_(min=tiny)


def alpha_gradient(probs: Tensor, epsilon: float | Tensor, grad: Tensor) -> Tensor:
    """Gradient with respect to alpha, one number per row.

    Proposition 1 of Correia et al. 2019 divides by ``(alpha - 1) ** 2``; this is the same
    derivative rearranged so that nothing cancels, on the whole of [1, 2]:

        dp_i/dalpha = p_i / Z * [(1 - epsilon l_i) W - w_i (1 + epsilon H)]

    with ``l_i = log p_i``, ``w_i = l_i**2 phi(epsilon l_i)``, ``H = -sum p_j l_j``,
    ``W = sum p_j w_j`` and ``Z = 1 + epsilon H + epsilon**2 W``.
    """
    # The derivatives of a row sum to zero: a constant in the gradient only costs digits.
    grad = grad - (probs * grad).sum(-1, keepdim=True)
    log_probs = probs.clamp(min=torch.finfo(probs.dtype).tiny).log_()
    weight = _phi(epsilon * log_probs).mul_(log_probs).mul_(log_probs).mul_(probs)
    entropy = -(probs * log_probs).sum(-1, keepdim=True)
    mean_weight = weight.sum(-1, keepdim=True)
    normaliser = 1.0 + epsilon * (entropy + epsilon * mean_weight)
    from_weight = weight.mul_(grad).sum(-1, keepdim=True)
    grad *= probs
    from_mean = grad.sum(-1, keepdim=True)
    from_mean -= epsilon * grad.mul_(log_probs).sum(-1, keepdim=True)
    return (mean_weight * from_mean - (1.0 + epsilon * entropy) * from_weight) / normaliser


def _phi(x: Tensor) -> Tensor:
    """``(exp(-x) - 1 + x) / x**2`` for x <= 0, 1/2 at 0."""
    series = torch.full_like(x, PHI_COEFFICIENTS[-1])
    for coefficient in reversed(PHI_COEFFICIENTS[:-1]):
        series.mul_(x).add_(coefficient)
    closed = torch.neg(x).expm1_().add_(x).div_((x * x).clamp_(min=PHI_SERIES_BELOW**2))
    return torch.where(x > -PHI_SERIES_BELOW, series, closed)
