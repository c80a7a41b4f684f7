"""Independent references for alpha-entmax: the definition, solved slowly in float64.

Nothing here is shared with the package: the threshold is found by bisection, and derivatives are
finite differences.
"""

import math

import torch

ALPHAS = (1.0, 1.0001, 1.01, 1.1, 1.25, 1.33, 1.5, 1.75, 1.99, 2.0)
ROW_LENGTHS = (1, 2, 3, 7, 30, 128, 1024)
SCALES = (0.1, 1.0, 8.0, 50.0)


def random_rows(rows, keys, scale, seed=0, dtype=torch.float64):
    """Normal scores that float32 represents exactly, so that both precisions see the same rows."""
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(rows, keys, generator=generator)).to(dtype)


def attention_scores(heads=4, dtype=torch.float32):
    """``(2, heads, 3, 9)``, with one key of each sentence masked."""
    scores = random_rows(6 * heads, 9, 2.0, dtype=dtype).view(2, heads, 3, 9)
    scores[0, ..., 4] = scores[1, ..., 0] = -math.inf
    return scores


def bisection(scores, alpha):
    """Alpha-entmax along the last dimension from its definition, for any alpha in [1, 2].

    Finds theta with ``sum_i [1 + (alpha - 1)(z_i - theta)]_+ ** (1 / (alpha - 1)) = 1``, where
    alpha = 1 stands for the limit ``exp(z_i - theta)``. The root lies between the largest
    score, where the sum is at least 1, and ``log n`` above it, where it is at most 1.
    """
    scores = scores.detach().double()
    epsilon = torch.as_tensor(alpha, dtype=torch.float64) - 1.0
    top = scores.amax(-1, keepdim=True)
    all_masked = top == -math.inf
    distance = scores - torch.where(all_masked, 0.0, top)

    def at(theta):
        shifted = distance - theta
        power = torch.log1p((epsilon * shifted).clamp(min=-1.0)) / epsilon
        return torch.exp(torch.where(epsilon == 0.0, shifted, power))

    low = torch.zeros_like(top)
    high = low + math.log(scores.shape[-1]) + 1e-9
    for _ in range(80):
        middle = (low + high) / 2
        too_low = at(middle).sum(-1, keepdim=True) > 1.0
        low, high = torch.where(too_low, middle, low), torch.where(too_low, high, middle)
    probs = at(low)
    return torch.where(all_masked, 0.0, probs / probs.sum(-1, keepdim=True))


def alpha_derivative(scores, alpha):
    """Second-order finite difference of :func:`bisection` in alpha, one-sided at 1 and 2.

    Near 1, rounding errors are divided by alpha - 1, which needs a longer step; above, a short step
    avoids the kinks where a key leaves the support.
    """
    step = 1e-5 if alpha < 1.2 else 1e-6
    if alpha - step >= 1.0 and alpha + step <= 2.0:
        return (bisection(scores, alpha + step) - bisection(scores, alpha - step)) / (2 * step)
    inward = step if alpha - step < 1.0 else -step
    here, near, far = (bisection(scores, alpha + k * inward) for k in (0, 1, 2))
    return (4 * near - 3 * here - far) / (2 * inward)


def scores_derivative(scores, alpha, grad, step=1e-6):
    """Central difference of ``(bisection(scores) * grad).sum()`` with respect to every score."""
    result = torch.zeros_like(scores)
    for key in range(scores.shape[-1]):
        moved = torch.zeros_like(scores)
        moved[..., key] = step
        change = bisection(scores + moved, alpha) - bisection(scores - moved, alpha)
        result[..., key] = (change * grad).sum(-1) / (2 * step)
    return result
