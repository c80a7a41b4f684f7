"""What the tests of the entmax loss share: scores and targets, and the loss from its definition."""

import torch

from fairseq_entmax.mappings import entmax_loss_parts
from tests.mappings.reference import bisection

ALPHAS = [1.0, 1.0001, 1.2, 1.5, 2.0]
SPARSE = [1.2, 1.33, 1.5, 1.9, 2.0]
SMOOTHINGS = [0.0, 0.1]


def case(rows=7, keys=40, spread=3.0, dtype=torch.float64, seed=0):
    """Scores that float32 holds exactly, and a target for each row: in turn the best key and any."""
    generator = torch.Generator().manual_seed(seed)
    scores = spread * torch.randn(rows, keys, generator=generator)
    target = torch.randint(keys, (rows,), generator=generator)
    target[::2] = scores[::2].argmax(-1)
    return scores.to(dtype), target


def wanted(scores, target, smoothing):
    """q, key by key."""
    probs = torch.zeros_like(scores)
    for row, index in enumerate(target):
        seen = (scores[row] > -torch.inf).nonzero().flatten()
        probs[row, seen] = smoothing / max(1, len(seen) - 1)
        probs[row, index] = 1 - smoothing
    return probs


def reference(scores, target, alpha, smoothing=0.0):
    """(p - q) z + H(p) in float64, p by bisection; without masks."""
    scores = scores.double()
    probs = bisection(scores, alpha)
    if alpha == 1.0:
        entropy = -torch.special.xlogy(probs, probs).sum(-1)
    else:
        entropy = (probs - probs**alpha).sum(-1) / (alpha * (alpha - 1))
    return ((probs - wanted(scores, target, smoothing)) * scores).sum(-1) + entropy


def gradient(scores, target, alpha, smoothing=0.0):
    scores = scores.detach().clone().requires_grad_()
    entmax_loss_parts(scores, target, alpha, smoothing).loss.sum().backward()
    return scores.grad
