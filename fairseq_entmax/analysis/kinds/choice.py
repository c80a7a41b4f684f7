"""Which texts of a classifier are shown, where nobody chooses: no two the same, of every label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from torch import Tensor

from fairseq_entmax.analysis.kinds.lengths import LengthCounts
from fairseq_entmax.analysis.kinds.typical import DIGITS, dealt, digest

# One in so many texts is classified wrongly, where there are as many
WRONG_ONE_IN = 3
VARIED = "varied"


class _Kept(NamedTuple):
    """What is known of a text; of two of a length, the greater one is shown first."""

    difference: float
    first: int  # the number in the data set below 0: of equals, the first
    length: int
    label: int
    is_wrong: bool

    @property
    def number(self) -> int:
        """The text's in the data set."""
        return -self.first


class VariedTexts:
    """Keeps different texts of every label, whatever the number of texts seen.

    Every label has as many as the next, as far as it has that many different ones. One in
    ``WRONG_ONE_IN`` is classified wrongly, spread over labels likewise, where there are any. Of
    those that this leaves, the ones of a typical length whose heads differ most are taken, as
    :class:`~fairseq_entmax.analysis.kinds.lengths.TypicalLengths` has it.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        self._lengths = LengthCounts()
        # By label, whether it is classified wrongly, and length, the best texts
        self._best: dict[tuple[int, bool, int], dict[bytes, _Kept]] = {}

    def update(
        self,
        ids: Tensor,
        differences: Tensor,
        texts: Sequence[Sequence[int]],
        labels: Tensor,
        is_wrong: Tensor,
    ) -> None:
        """Offer a batch.

        Args:
            ids: ``(batch,)``: the texts' numbers in the data set.
            differences: ``(batch,)``: how much heads differ in each.
            labels: ``(batch,)``: the texts' classes.
            is_wrong: ``(batch,)`` bool: whether any model gives it another class.
        """
        self._lengths.update(map(len, texts))
        rows = (ids.tolist(), differences.tolist(), texts, labels.tolist(), is_wrong.tolist())
        for number, difference, tokens, label, wrong in zip(*rows, strict=True):
            text, length = digest(tokens), len(tokens)
            kept = self._best.setdefault((label, wrong, length), {})
            own = _Kept(round(difference, DIGITS), -number, length, label, wrong)
            # Of the same text the first in the data set
            if text not in kept or own.number < kept[text].number:
                kept[text] = own
            if len(kept) > self._number:
                del kept[min(kept, key=lambda text: kept[text])]

    def sentences(self) -> list[int]:
        """The numbers of the texts kept: one of each label in turn, those that differ most first."""
        texts: dict[bytes, _Kept] = {}
        for kept in self._best.values():
            for text, own in kept.items():
                # Some data has a text with two labels
                if text not in texts or own.number < texts[text].number:
                    texts[text] = own
        typical = self._lengths.typical()

        def rank(one: _Kept) -> tuple[Any, ...]:
            # Of those that are not typical the nearest
            is_typical = typical.quarter(one.length) is not None
            return (
                not is_typical,
                () if is_typical else typical.distance(one.length),
                -one[0],
                -one[1],
            )

        ranked = sorted(texts.values(), key=rank)
        wrong = _by_label(one for one in ranked if one.is_wrong)
        right = _by_label(one for one in ranked if not one.is_wrong)
        # If not every label can have a text, those with wrong ones come first
        labels = sorted({*wrong, *right}, key=lambda label: (label not in wrong, label))
        sizes = {one: len(wrong.get(one, ())) + len(right.get(one, ())) for one in labels}
        shares = dealt(sizes, self._number)
        possible = {one: min(len(wrong.get(one, ())), shares[one]) for one in labels}
        of_wrong = dealt(possible, max(1, self._number // WRONG_ONE_IN))
        chosen = []
        for label in sorted(labels):
            some, others = wrong.get(label, []), right.get(label, [])
            few = of_wrong[label]
            taken = [*some[:few], *others[: shares[label] - few], *some[few:]][: shares[label]]
            chosen.append(sorted(taken, key=rank))
        turns = zip_longest(*chosen)
        return [one.number for turn in turns for one in turn if one is not None]

    def how(self) -> dict[str, Any]:
        """How they were chosen, as the document says it."""
        return {"by": VARIED, "lengths": list(self._lengths.typical())}


def _by_label(texts: Iterable[_Kept]) -> dict[int, list[_Kept]]:
    by_label: dict[int, list[_Kept]] = {}
    for one in texts:
        by_label.setdefault(one.label, []).append(one)
    return by_label
