"""Attention in float64, for the kernels that compute it as a whole."""

import torch

from fairseq_entmax.mappings import threshold
from tests.mappings.reference import bisection


class _Mapping(torch.autograd.Function):
    """Alpha-entmax by bisection, and the derivatives that tests/mappings holds to differences."""

    @staticmethod
    def forward(ctx, scores, epsilon):
        probs = bisection(scores, epsilon + 1)
        ctx.save_for_backward(probs, epsilon)
        return probs

    @staticmethod
    def backward(ctx, grad):
        probs, epsilon = ctx.saved_tensors
        rows = threshold.alpha_gradient(probs, epsilon, grad)
        return threshold.scores_gradient(probs, epsilon, grad), rows.sum_to_size(epsilon.shape)


def attention(query, key, value, epsilon, padding=None, mask=None, causal=False, scale=1.0):
    """What attention is to compute, written down: ``(batch, heads, positions, head_dim)``."""
    scores = scale * query @ key.mT
    if mask is not None:
        scores = scores + mask.double()
    if padding is not None:
        scores = scores.masked_fill(padding[:, None, None], -torch.inf)
    if causal:
        queries, keys = scores.shape[-2:]
        hidden = torch.ones(queries, keys, dtype=torch.bool).triu(1 + keys - queries)
        scores = scores.masked_fill(hidden, -torch.inf)
    return _Mapping.apply(scores, epsilon.view(1, -1, 1, 1)) @ value
