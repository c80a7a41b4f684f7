"""Tokens joined to words, in texts and in weights of attention."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fairseq_entmax.analysis.tokens import MARK


def groups_of(words: Sequence[int]) -> list[list[int]]:
    """The places of each word.

    Args:
        words: the number of each token's word, of :meth:`TokenTable.words`; below 0 for tokens
            that are no words, which stay alone.
    """
    groups: list[list[int]] = []
    before = None
    for place, word in enumerate(words):
        if word < 0 or word != before:
            groups.append([])
        groups[-1].append(place)
        before = word if word >= 0 else None
    return groups


def joined_tokens(tokens: Sequence[str], groups: Sequence[Sequence[int]]) -> list[str]:
    """The words of tokens, without the marks of subwords."""
    return [readable("".join(tokens[place] for place in group)) for group in groups]


def readable(text: str) -> str:
    """A word of the tokens that it was cut into."""
    return text.replace("@@", "").replace(MARK, "") or text


def joined_weights(
    weights: Tensor, queries: Sequence[Sequence[int]], keys: Sequence[Sequence[int]]
) -> Tensor:
    """Weights of words: the sum over the tokens of a key, the mean over those of a query.

    Rows add up to what they did, and a word has a weight of exactly 0 where all its tokens have.

    Args:
        weights: ``(heads, queries, keys)``.
        queries, keys: the places of each word.

    Returns:
        ``(heads, words, words)``.
    """
    summed = [weights[..., list(group)].sum(dim=-1) for group in keys]
    wide = torch.stack(summed, dim=-1)
    means = [wide[:, list(group)].mean(dim=1) for group in queries]
    return torch.stack(means, dim=1)
