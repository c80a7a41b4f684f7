"""The sentences shown by default: those of typical length in which heads differ most."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from torch import Tensor

# Quantiles of length: where typical sentences begin, where the quarters meet, where they end
BORDERS = (0.125, 0.25, 0.5, 0.75, 0.875)
# A map of more tokens is hard to read, so longer sentences come last
LONGEST_SHOWN = 80
# Decimals of how much heads differ that are compared: padding changes later ones
DIGITS = 5
# The order in which quarters of the data, by length, get a sentence: those near the median first
QUARTERS = (1, 2, 0, 3)


class TypicalLengths(NamedTuple):
    """The lengths, in tokens, at :data:`BORDERS`; those from the first to the last are typical."""

    shortest: int
    first_quartile: int
    median: int
    third_quartile: int
    longest: int

    @classmethod
    def of(cls, counts: Counter[int]) -> TypicalLengths:
        """Make them from the number of sentences of each length; all are 0 without sentences."""
        lengths = sorted(counts) or [0]
        seen = list(itertools.accumulate(counts[length] for length in lengths))
        return cls(*(lengths[bisect_left(seen, border * seen[-1])] for border in BORDERS))

    def quarter(self, length: int) -> int | None:
        """Return the quarter of the data, 0 to 3, of a typical length; None for other lengths."""
        if not self.shortest <= length <= min(self.longest, LONGEST_SHOWN):
            return None
        return sum(length > border for border in self[1:4])

    def distance(self, length: int) -> tuple[bool, int]:
        """Return a sort key: readable lengths come first, then those near the median."""
        return length > LONGEST_SHOWN, abs(length - self.median)


class _Candidate(NamedTuple):
    """A sentence that may be shown; greater candidates are shown first."""

    difference: float
    first: int  # minus its number in the data set: among equals, the earlier is greater
    length: int


class TypicalSentences:
    """Keeps the typical sentences in which heads differ most, out of any number of sentences.

    Each quarter of the data, by length, gives equally many, the inner quarters first; an outer one
    gives only from its half nearest the median. No text is taken twice, and none of more than
    :data:`LONGEST_SHOWN` tokens. Places that this leaves go to other sentences near the median, too
    long ones last. Typical lengths are known only at the end, so the best of every length are
    kept."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lengths: Counter[int] = Counter()
        # Length to the best texts, by their hashes
        self._best: dict[int, dict[int, _Candidate]] = {}

    def update(
        self, ids: Tensor, differences: Tensor, lengths: Tensor, texts: Sequence[Sequence[int]]
    ) -> None:
        """Offer a batch: tensors are ``(batch,)``, and ``lengths`` are those of what is shown."""
        rows = (ids.tolist(), differences.tolist(), lengths.tolist(), texts)
        self._lengths.update(rows[2])
        for number, difference, length, tokens in zip(*rows, strict=True):
            best = self._best.setdefault(length, {})
            candidate = _Candidate(round(difference, DIGITS), -number, length)
            _keep_first(best, hash(tuple(tokens)), candidate)
            if len(best) > self._number:
                del best[min(best, key=lambda text: best[text])]

    def sentences(self) -> list[int]:
        """Return the numbers of the chosen sentences, in the order in which to show them."""
        texts: dict[int, _Candidate] = {}
        for best in self._best.values():
            for text, candidate in best.items():
                # A text may have two lengths if its other sides differ
                _keep_first(texts, text, candidate)
        typical, ranked = self._typical, sorted(texts.values(), reverse=True)
        quarters = [
            [one for one in ranked if typical.quarter(one.length) == quarter]
            for quarter in QUARTERS
        ]
        # One sentence of each quarter in turn, those whose heads differ most first
        shares = deal_out({place: len(one) for place, one in enumerate(quarters)}, self._number)
        turns = zip_longest(*(quarters[place][:share] for place, share in shares.items()))
        chosen = [one for turn in turns for one in turn if one is not None]
        others = (one for one in ranked if one not in chosen)
        chosen += sorted(others, key=lambda one: typical.distance(one.length))
        return [-one.first for one in chosen[: self._number]]

    def how(self) -> dict[str, Any]:
        """Return how they were chosen, in the form of ``chosen`` in the document."""
        return {"by": "typical", "lengths": list(self._typical)}

    @property
    def _typical(self) -> TypicalLengths:
        return TypicalLengths.of(self._lengths)


def _keep_first(best: dict[int, _Candidate], text: int, candidate: _Candidate) -> None:
    """Keep, of the same text, the first candidate in the data set."""
    if text not in best or candidate.first > best[text].first:
        best[text] = candidate


def deal_out(sizes: dict[int, int], number: int) -> dict[int, int]:
    """Deal out ``number`` one by one in turn; return how many each gets, at most its size."""
    shares = dict.fromkeys(sizes, 0)
    while number > 0 and any(shares[one] < size for one, size in sizes.items()):
        for one, size in sizes.items():
            if shares[one] < size and number > 0:
                shares[one] += 1
                number -= 1
    return shares
