"""Measures on the weights of attention. torch alone.

Weights are ``(batch, heads, queries, keys)``, one row of probabilities for each query, zero
at padding. A measure of rows gives ``(batch, heads, queries)``; rows of padding give numbers
without meaning, which the caller leaves out. Where several keys share the largest weight, the
leftmost counts as the maximum.

Sources: Correia, Niculae, Martins 2019, *Adaptively Sparse Transformers*, section 5; Voita et
al. 2019, *Analyzing Multi-Head Self-Attention*, sections 4 and 5.
"""

from __future__ import annotations

import torch
from torch import Tensor

OFFSETS = (-4, -3, -2, -1, 0, 1, 2, 3, 4)


def density(weights: Tensor, attendable: Tensor) -> Tensor:
    """The share of the attendable keys with a weight above zero (Correia et al., figure 4).

    Args:
        weights: ``(batch, heads, queries, keys)``.
        attendable: ``(batch, queries)``: how many keys each query may look at, 1 or more.

    Returns:
        ``(batch, heads, queries)`` in [0, 1].
    """
    return torch.count_nonzero(weights, dim=-1) / attendable[:, None]


def entropy(weights: Tensor) -> Tensor:
    """Shannon's entropy of each row in nats: ``(batch, heads, queries)``, 0 or more."""
    return torch.special.entr(weights).sum(dim=-1)


def confidence(weights: Tensor, left_out: Tensor) -> Tensor:
    """The largest weight of each row on a key that counts (Voita et al., section 4).

    Args:
        weights: ``(batch, heads, queries, keys)``.
        left_out: ``(batch, keys)`` bool: the keys that do not count, which are ends of
            sentences.

    Returns:
        ``(batch, heads, queries)`` in [0, 1].
    """
    columns = left_out.any(dim=0).nonzero().flatten().tolist()
    if columns in ([0], [left_out.size(1) - 1]) and bool(left_out[:, columns[0]].all()):
        # All at one edge, as fairseq pads: a view does, without a copy
        kept = slice(1, None) if columns == [0] else slice(None, -1)
        if left_out.size(1) > 1:
            return weights[..., kept].amax(dim=-1)
    return weights.masked_fill(left_out[:, None, None], 0.0).amax(dim=-1)


def maximum(weights: Tensor) -> Tensor:
    """The leftmost key with the largest weight: ``(batch, heads, queries)`` int64."""
    return weights.argmax(dim=-1)


def offset_keys(
    offsets: Tensor, query_start: Tensor, key_start: Tensor, queries: int, attendable: Tensor
) -> tuple[Tensor, Tensor]:
    """The key at each relative offset from each query, and whether there is one.

    An offset is the key's place in its sentence less the query's, both from 0.

    Args:
        offsets: ``(offsets,)`` int64.
        query_start: ``(batch,)``: where each sentence of queries begins, behind padding.
        key_start: ``(batch,)``: where each sentence of keys begins.
        queries: how many queries there are, padding included.
        attendable: ``(batch, queries)``: how many keys each query may look at: the first so
            many of its sentence.

    Returns:
        Two tensors ``(batch, queries, offsets)``: the key's index, clipped to the keys there
        are, and whether the query may look there.
    """
    index = torch.arange(queries, device=offsets.device)
    places = index - query_start[:, None]  # (batch, queries)
    wanted = places[:, :, None] + offsets
    exists = (wanted >= 0) & (wanted < attendable[:, :, None])
    last = attendable.clamp(min=1)[:, :, None] - 1
    keys = torch.minimum(wanted.clamp(min=0), last) + key_start[:, None, None]
    return keys, exists


def weight_at(weights: Tensor, keys: Tensor, exists: Tensor) -> Tensor:
    """The weight on given keys.

    Args:
        weights: ``(batch, heads, queries, keys)``.
        keys, exists: ``(batch, queries, n)``, as :func:`offset_keys` gives them.

    Returns:
        ``(batch, heads, queries, n)``, 0 where there is no such key.
    """
    index = keys[:, None].expand(-1, weights.size(1), -1, -1)
    return weights.gather(3, index).mul_(exists[:, None])


def diversity(weights: Tensor, attendable: Tensor, entropies: Tensor | None = None) -> Tensor:
    """How much heads disagree: their Jensen-Shannon divergence (Correia et al., equation 11).

    Args:
        weights: ``(batch, heads, queries, keys)``, one head or more.
        attendable: ``(batch, queries)``: how many keys each query may look at; its logarithm
            is the unit, so that the measure is at most 1.
        entropies: what :func:`entropy` gave, to save its work.

    Returns:
        ``(batch, queries)`` in [0, 1], 0 where all heads agree; NaN where a query has one key
        alone, over which heads cannot disagree.
    """
    entropies = entropy(weights) if entropies is None else entropies
    mixture = torch.special.entr(weights.mean(dim=1)).sum(dim=-1)
    divergence = (mixture - entropies.mean(dim=1)).clamp(min=0)
    scale = attendable.to(weights.dtype).log()
    return torch.where(attendable > 1, divergence / scale.clamp(min=1e-9), torch.nan)


def mass_in_word(weights: Tensor, words: Tensor) -> Tensor:
    """The weight that each token puts on the rest of its word; on itself in a word of one token.

    Args:
        weights: ``(batch, heads, length, length)``, of self-attention.
        words: ``(batch, length)`` int64: the same number for the tokens of one word, which
            stand side by side; -1 outside of words.

    Returns:
        ``(batch, heads, length)`` in [0, 1], 0 outside of words.
    """
    length = words.size(1)
    reach = _longest_run(words) - 1
    shifts = torch.arange(-reach, reach + 1, device=words.device)
    places = torch.arange(length, device=words.device)[:, None] + shifts
    keys = places.clamp(0, length - 1)
    same = (words[:, keys] == words[:, :, None]) & (places == keys) & (words[:, :, None] >= 0)
    is_alone = same.sum(dim=-1, keepdim=True) == 1
    wanted = torch.where(shifts == 0, same & is_alone, same)
    return weight_at(weights, keys.expand(words.size(0), -1, -1), wanted).sum(dim=-1)


def _longest_run(words: Tensor) -> int:
    """The number of tokens of the longest word, 1 or more."""
    length = 1
    while length < words.size(1):
        longer = (words[:, length:] == words[:, :-length]) & (words[:, length:] >= 0)
        if not bool(longer.any()):
            break
        length += 1
    return length


def merging_by_word(mass: Tensor, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The subword-merging score of each word (Correia et al., section 5.2).

    The largest weight that any token of the word puts on the rest of it; for a word of one
    token the weight on itself.

    Args:
        mass: what :func:`mass_in_word` gave, ``(batch, heads, length)``.
        words: ``(batch, length)``, as there.

    Returns:
        Scores ``(batch, heads, length)``, each at the first token of its word; whether a word
        begins there, ``(batch, length)`` bool; and whether it has several tokens.
    """
    length = words.size(1)
    begins = words >= 0
    begins[:, 1:] &= words[:, 1:] != words[:, :-1]
    number = begins.cumsum(dim=1) - 1
    number = torch.where(words >= 0, number, length)  # outside of words: a place of its own
    scores = mass.new_zeros((*mass.shape[:2], length + 1))
    index = number[:, None].expand_as(mass)
    scores.scatter_reduce_(2, index, mass, "amax", include_self=True)
    at_begin = scores.gather(2, index.clamp(max=length))
    several = torch.zeros_like(begins)
    several[:, :-1] = begins[:, :-1] & (words[:, 1:] == words[:, :-1])
    return at_begin, begins, several
