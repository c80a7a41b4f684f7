"""Which sentences are shown, where nobody chooses: typical ones whose heads differ most."""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from torch import Tensor

# Of all sentences ordered by length: where the typical ones begin, the quarters meet, and they end
BORDERS = (0.125, 0.25, 0.5, 0.75, 0.875)
# A map of more tokens is hard to read; of sentences as long as this, longer ones come last
LONGEST_SHOWN = 80
# Of how much heads differ, behind the point: padding moves the last digits
DIGITS = 5
# Of the quarters of the data by length, in which order they have a sentence more: near the median
# first
QUARTERS = (1, 2, 0, 3)


class TypicalLengths(NamedTuple):
    """The lengths, in tokens, at :data:`BORDERS`: what is typical is from the first to the last."""

    shortest: int
    first_quartile: int
    median: int
    third_quartile: int
    longest: int

    @classmethod
    def of(cls, counts: Counter[int]) -> TypicalLengths:
        """Of the number of sentences of each length; all 0 of none."""
        lengths = sorted(counts) or [0]
        seen = list(itertools.accumulate(counts[length] for length in lengths))
        return cls(*(lengths[bisect_left(seen, border * seen[-1])] for border in BORDERS))

    def quarter(self, length: int) -> int | None:
        """In which quarter of the data, 0 to 3, a typical sentence is; None for others."""
        if not self.shortest <= length <= min(self.longest, LONGEST_SHOWN):
            return None
        return sum(length > border for border in self[1:4])

    def distance(self, length: int) -> tuple[bool, int]:
        """How far from typical a length is: what can be read comes first, then by the median."""
        return length > LONGEST_SHOWN, abs(length - self.median)


class _Candidate(NamedTuple):
    """What is known of a sentence; of two alike, the greater one is shown first."""

    difference: float
    first: int  # the number in the data set below 0: of equals, the first
    length: int


class TypicalSentences:
    """Holds typical sentences in which heads differ most, whatever the number of sentences seen.

    Of each quarter of the data by length as many are taken as of the next, the inner ones first, and
    of the outer ones those of the half nearest the median. No text is taken twice, and none of more
    than :data:`LONGEST_SHOWN` tokens. Where this leaves places, those nearest the median have them. The
    lengths that are typical are known at the end alone, so the best of every length are kept."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lengths: Counter[int] = Counter()
        # By length, the best texts
        self._best: dict[int, dict[bytes, _Candidate]] = {}

    def update(
        self,
        ids: Tensor,
        differences: Tensor,
        lengths: Tensor,
        texts: Sequence[Sequence[int]],
    ) -> None:
        """Offer a batch: all but the texts are ``(batch,)``, the lengths those of what is shown."""
        rows = (ids.tolist(), differences.tolist(), lengths.tolist(), texts)
        self._lengths.update(rows[2])
        for number, difference, length, tokens in zip(*rows, strict=True):
            best = self._best.setdefault(length, {})
            candidate = _Candidate(round(difference, DIGITS), -number, length)
            _keep_first(best, digest(tokens), candidate)
            if len(best) > self._number:
                del best[min(best, key=lambda text: best[text])]

    def sentences(self) -> list[int]:
        """The numbers of those kept, those to show first before others."""
        texts: dict[bytes, _Candidate] = {}
        for best in self._best.values():
            for text, candidate in best.items():
                # A text may have two lengths where the other side differs
                _keep_first(texts, text, candidate)
        return [-one.first for one in self._chosen(list(texts.values()), self._typical)]

    def how(self) -> dict[str, Any]:
        """How they were chosen, as the document says it."""
        return {"by": "typical", "lengths": list(self._typical)}

    @property
    def _typical(self) -> TypicalLengths:
        return TypicalLengths.of(self._lengths)

    def _chosen(self, every: list[_Candidate], typical: TypicalLengths) -> list[_Candidate]:
        """One of each quarter in turn, those that differ most first."""
        ranked = sorted(every, reverse=True)
        quarters = [
            [one for one in ranked if typical.quarter(one.length) == quarter]
            for quarter in QUARTERS
        ]
        shares = dealt({place: len(one) for place, one in enumerate(quarters)}, self._number)
        chosen = _in_turns(quarters[place][:share] for place, share in shares.items())
        rest = sorted(
            set(every) - set(chosen),
            key=lambda one: (typical.distance(one.length), -one.difference, -one.first),
        )
        return [*chosen, *rest[: self._number - len(chosen)]]


def _keep_first(best: dict[bytes, _Candidate], text: bytes, candidate: _Candidate) -> None:
    """Of the same text the first in the data set."""
    if text not in best or candidate.first > best[text].first:
        best[text] = candidate


def _in_turns(groups: Iterable[Sequence[_Candidate]]) -> list[_Candidate]:
    return [one for turn in zip_longest(*groups) for one in turn if one is not None]


def digest(tokens: Sequence[int]) -> bytes:
    """What two texts have in common that are the same, and only these: 16 bytes."""
    return hashlib.blake2b(repr(list(tokens)).encode(), digest_size=16).digest()


def dealt(sizes: dict[int, int], number: int) -> dict[int, int]:
    """How many each gets of a number that is dealt out one by one, none more than its size."""
    shares = dict.fromkeys(sizes, 0)
    while number > 0 and any(shares[one] < size for one, size in sizes.items()):
        for one, size in sizes.items():
            if shares[one] < size and number > 0:
                shares[one] += 1
                number -= 1
    return shares
