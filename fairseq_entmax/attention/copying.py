"""A mixture of a generator and a copy of the source, in log space.

    p(w) = g generator(w) + (1 - g) sum of the copy's weights at source words that are w

This is a pointer-generator (See, Liu and Manning 2017, equation 9; Gehrmann et al. 2018 for the
Transformer). The vocabulary has V words. M markers may follow, for source words that it lacks: the
copy can produce them, the generator cannot. A sparse copy can give a word exactly zero, so
logarithms are taken only of positive sums, and no probability is clamped. The loss makes no tensor
as large as the logits but their gradient.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from fairseq_entmax.mappings.functional import in_full_precision

# Larger exponents may overflow, in sums of exponentials at least; 80 for float32
_MOST_EXPONENT = {torch.float64: 690.0}
_ROWS_AT_ONCE = 2**22  # logits that are converted to float32 at once


class CopyParts(NamedTuple):
    """What a decoder that copies returns besides the generator's logits."""

    switch: Tensor  # (batch, target), the logit of g
    weights: Tensor  # (batch, target, source), the distribution of the copy
    source: Tensor  # (batch, source), indices of words; markers are V and above
    head_weights: Tensor | None = None  # (heads, batch, target, source), whose mean is weights
    head_scores: Tensor | None = None  # scores of these weights, -inf at padding; if requested


class MixtureLoss(NamedTuple):
    """The loss of the mixture at each target word; every field is ``(batch, target)``."""

    nll: Tensor  # -log p(target); 0 if the target is not reachable
    smooth: Tensor | None  # the sum of -log p(w) over the vocabulary's V words, if requested
    reachable: Tensor  # whether p(target) > 0
    copied: Tensor  # the copy's probability of the target word


class _LogMix(torch.autograd.Function):
    """log(exp(a) + exp(b) c) for a, b <= 0 and c >= 0, exact at c = 0 and at a = -inf."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        mixed = torch.where(c > 0, torch.logaddexp(a, b + c.log()), a)
        ctx.save_for_backward(a, b, c, mixed)
        return mixed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b, c, mixed = ctx.saved_tensors
        has_mass = mixed > -torch.inf
        whole = torch.where(has_mass, mixed, 0.0)
        grad = torch.where(has_mass, grad, 0.0)
        most = _MOST_EXPONENT.get(mixed.dtype, 80.0)
        copy = grad * (b - whole).clamp(max=most).exp()
        return grad * (a - whole).exp(), copy * c, copy


def log_mix(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """log(exp(a) + exp(b) c), with gradients of all three, even at a = -inf or c = 0.

    ``a`` <= 0 is the log of the generator's part, -inf if it has none; ``b`` <= 0, finite, is that
    of the copy's share; ``c`` >= 0 is the copy's probability. If both parts are 0, the result is
    -inf, with gradient 0.
    """
    mixed: Tensor = _LogMix.apply(*torch.broadcast_tensors(a, b, c))
    return mixed


def sum_by_word(weights: Tensor, source: Tensor) -> tuple[Tensor, Tensor]:
    """Sum weights ``(batch, target, source)`` over the positions of equal words ``(batch, source)``.

    Returns:
        At each position the sum of its word; and ``(batch, source)``, true once for each word.
    """
    order = source.argsort(dim=1)
    ordered = source.gather(1, order)
    is_new = functional.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True)
    # For each position, the number of its word among the distinct words of the sentence
    word = torch.empty_like(order).scatter_(1, order, is_new.cumsum(1) - 1)
    is_one = torch.empty_like(is_new).scatter_(1, order, is_new)
    index = word[:, None, :].expand_as(weights)
    sums = torch.zeros_like(weights).scatter_add(2, index, weights)
    return sums.gather(2, index), is_one


def mixture_log_probs(logits: Tensor, parts: CopyParts, num_words: int) -> Tensor:
    """The log probabilities of all V + M words, -inf at markers to which the copy gives no weight.

    Args:
        logits: ``(batch, target, V)``, of the generator, of any floating dtype.
        parts: those of the copy.
        num_words: V + M, markers included.

    Returns:
        ``(batch, target, num_words)``, float32 (float64 for float64).
    """
    in_full = in_full_precision(logits)
    weights, switch = parts.weights.to(in_full.dtype), parts.switch.to(in_full.dtype)[..., None]
    generated = functional.log_softmax(in_full, -1) + functional.logsigmoid(switch)
    markers = num_words - logits.size(-1)
    log_probs = functional.pad(generated, (0, markers), value=-torch.inf)
    copied, is_one = sum_by_word(weights, parts.source)
    index = parts.source[:, None, :].expand_as(copied)
    mixed = log_mix(log_probs.gather(2, index), functional.logsigmoid(-switch), copied)
    # scatter would give each of several equal words the gradient of their one entry
    return log_probs.scatter(2, index, torch.where(is_one[:, None], mixed, mixed.detach()))


def mixture_loss(
    logits: Tensor, parts: CopyParts, target: Tensor, with_smooth: bool = False
) -> MixtureLoss:
    """What a loss needs of the mixture, in float32 at least, without probabilities of all words.

    Args:
        logits: ``(batch, target, V)``, of the generator, of any floating dtype.
        parts: those of the copy.
        target: ``(batch, target)``, indices of words; markers are V and above.
        with_smooth: whether to compute the sum over the vocabulary as well.
    """
    num_words = logits.size(-1)
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    weights, switch = parts.weights.to(dtype), parts.switch.to(dtype)
    log_generated, log_copied = functional.logsigmoid(switch), functional.logsigmoid(-switch)
    words = target[..., None]
    if with_smooth:
        source = parts.source[:, None, :].expand(-1, target.size(1), -1)
        words = torch.cat([words, source], -1)
    known = words < num_words
    index = words.where(known, 0).flatten(0, -2)
    picked, total = _PickedLogSoftmax.apply(logits.flatten(0, -2), index, with_smooth)
    picked, total = picked.view(words.shape), total.view(words.shape[:-1])
    generated = picked.masked_fill(~known, -torch.inf) + log_generated[..., None]
    is_target = parts.source[:, None, :] == target[..., None]
    copied = (weights * is_target).sum(-1)
    log_probs = log_mix(generated[..., 0], log_copied, copied)
    reachable = log_probs > -torch.inf
    smooth = None
    if with_smooth:
        of_words, is_one = sum_by_word(weights, parts.source)
        mixed = log_mix(generated[..., 1:], log_copied[..., None], of_words)
        counts = known[..., 1:] & is_one[:, None, :]
        gained = torch.where(counts, mixed, 0.0) - torch.where(counts, generated[..., 1:], 0.0)
        smooth = -(total + num_words * log_generated + gained.sum(-1))
    return MixtureLoss(-log_probs.masked_fill(~reachable, 0.0), smooth, reachable, copied)


class _PickedLogSoftmax(torch.autograd.Function):
    """A log-softmax at some words, and its sum; only the gradient is as large as the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, index: Tensor, with_sum: bool) -> tuple[Tensor, Tensor]:
        dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
        log_sums = logits.new_empty(logits.size(0), dtype=dtype)
        total = logits.new_zeros(logits.size(0), dtype=dtype)
        for rows in _slices(logits):
            in_full = logits[rows].to(dtype)
            log_sums[rows] = in_full.logsumexp(1)
            if with_sum:
                total[rows] = in_full.sum(1) - logits.size(1) * log_sums[rows]
        ctx.save_for_backward(logits, index, log_sums)
        return logits.gather(1, index).to(dtype) - log_sums[:, None], total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_picked: Tensor, of_total: Tensor) -> tuple[Tensor, None, None]:
        logits, index, log_sums = ctx.saved_tensors
        whole = of_picked.sum(1) + logits.size(1) * of_total
        grad = torch.empty_like(logits)
        for rows in _slices(logits):
            part = (logits[rows].to(log_sums.dtype) - log_sums[rows, None]).exp_()
            part.mul_(-whole[rows, None]).add_(of_total[rows, None])
            grad[rows] = part.scatter_add_(1, index[rows], of_picked[rows])
        return grad, None, None


def _slices(logits: Tensor) -> list[slice]:
    rows = max(1, _ROWS_AT_ONCE // max(1, logits.size(1)))
    return [slice(first, first + rows) for first in range(0, logits.size(0), rows)]
