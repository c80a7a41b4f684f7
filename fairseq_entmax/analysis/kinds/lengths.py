"""Which lengths of sentences are typical of a data set: near the median, of every quarter of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

# Of all sentences ordered by length: where the typical ones begin, the quarters meet, and they end
BORDERS = (0.125, 0.25, 0.5, 0.75, 0.875)
# A map of more tokens is hard to read; of sentences as long as this, longer ones come last
LONGEST_SHOWN = 80


class TypicalLengths(NamedTuple):
    """The lengths, in tokens, at :data:`BORDERS`: what is typical is from the first to the last."""

    shortest: int
    first_quartile: int
    median: int
    third_quartile: int
    longest: int

    def quarter(self, length: int) -> int | None:
        """In which quarter of the data, 0 to 3, a typical sentence is; None for others."""
        if not self.shortest <= length <= min(self.longest, LONGEST_SHOWN):
            return None
        return sum(length > border for border in self[1:4])

    def distance(self, length: int) -> tuple[bool, int]:
        """How far from typical a length is: what can be read comes first, then by the median."""
        return length > LONGEST_SHOWN, abs(length - self.median)


class LengthCounts:
    """The lengths of a data set's sentences: a number for each length that there is."""

    def __init__(self) -> None:
        self._counts: Counter[int] = Counter()

    def update(self, lengths: Iterable[int]) -> None:
        """Add sentences by their lengths."""
        self._counts.update(lengths)

    def typical(self) -> TypicalLengths:
        """Of what was added; all 0 of nothing."""
        total, seen, found = sum(self._counts.values()), 0, [0] * len(BORDERS)
        ordered = sorted(self._counts.items())
        for place, border in enumerate(BORDERS):
            seen = 0
            for length, count in ordered:
                seen += count
                if seen >= border * total:
                    found[place] = length
                    break
        return TypicalLengths(*found)
