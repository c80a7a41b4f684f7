"""Which sentences are shown, where nobody chooses: typical ones whose heads differ most."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from fairseq_entmax.analysis.kinds.lengths import LengthCounts, TypicalLengths

# Of how much heads differ, behind the point: padding moves the last digits
DIGITS = 5
# Of the quarters of the data by length, in which order they have a sentence more: near the median
# first
QUARTERS = (1, 2, 0, 3)
TYPICAL = "typical"


class _Kept(NamedTuple):
    """What is known of a sentence; of two, the greater one is shown first."""

    difference: float
    first: int  # the number in the data set below 0: of equals, the first
    length: int


class TypicalSentences:
    """Keeps typical sentences in which heads differ most, whatever the number of sentences seen.

    Ordered by length, the data has four quarters. Of each as many sentences are taken as of the
    next, the inner ones first, and of the outer ones those of the half nearest the median: those
    whose heads differ most. No text is taken twice, and none of more than
    :data:`~fairseq_entmax.analysis.kinds.lengths.LONGEST_SHOWN` tokens. Where this leaves places,
    the sentences nearest the median have them.

    The lengths that are typical are known at the end alone, so the best of every length are kept.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._lengths = LengthCounts()
        self._best: dict[int, dict[bytes, _Kept]] = {}

    def update(
        self,
        ids: Tensor,
        differences: Tensor,
        lengths: Tensor,
        texts: Sequence[Sequence[int]],
    ) -> None:
        """Offer a batch.

        Args:
            ids: ``(batch,)``: the sentences' numbers in the data set.
            differences: ``(batch,)``: how much heads differ in each.
            lengths: ``(batch,)``: in tokens, of what is shown of each.
        """
        rows = (ids.tolist(), differences.tolist(), lengths.tolist(), texts)
        self._lengths.update(rows[2])
        for number, difference, length, tokens in zip(*rows, strict=True):
            kept, text = self._best.setdefault(length, {}), digest(tokens)
            own = _Kept(round(difference, DIGITS), -number, length)
            if text not in kept or own.first > kept[text].first:
                kept[text] = own
            if len(kept) > self._number:
                del kept[min(kept, key=lambda text: kept[text])]

    def sentences(self) -> list[int]:
        """Their numbers: one of each quarter in turn, those that differ most first."""
        typical = self._lengths.typical()
        every = self._different()
        ranked = sorted(every, reverse=True)
        quarters = [
            [one for one in ranked if typical.quarter(one.length) == quarter]
            for quarter in QUARTERS
        ]
        shares = dealt({place: len(one) for place, one in enumerate(quarters)}, self._number)
        turns = range(max(shares.values(), default=0))
        chosen = [
            quarters[place][turn] for turn in turns for place in shares if turn < shares[place]
        ]
        rest = sorted(set(every) - set(chosen), key=lambda one: _from_typical(typical, one))
        return [-one.first for one in [*chosen, *rest[: self._number - len(chosen)]]]

    def how(self) -> dict[str, Any]:
        """How they were chosen, as the document says it."""
        return {"by": TYPICAL, "lengths": list(self._lengths.typical())}

    def _different(self) -> list[_Kept]:
        """No two with the same text, which may be of two lengths where the other side differs."""
        texts: dict[bytes, _Kept] = {}
        for kept in self._best.values():
            for text, own in kept.items():
                if text not in texts or own.first > texts[text].first:
                    texts[text] = own
        return list(texts.values())


def _from_typical(typical: TypicalLengths, one: _Kept) -> tuple[tuple[bool, int], float, int]:
    return typical.distance(one.length), -one.difference, -one.first


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
