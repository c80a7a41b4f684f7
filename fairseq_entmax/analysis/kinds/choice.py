"""Which texts of a classifier are shown, where nobody chooses: no two the same, of every label."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Mapping as Dictionary
from itertools import zip_longest
from typing import NamedTuple

from torch import Tensor

from fairseq_entmax.analysis.maps import rank_of

# One in so many texts is classified wrongly, where there are as many
WRONG_ONE_IN = 3
# Of how much heads differ, behind the point
DIGITS = 5


class _Kept(NamedTuple):
    """What is known of a text; of two, the greater one is shown first."""

    rank: tuple[bool, float, int]
    label: int
    is_wrong: bool

    @property
    def number(self) -> int:
        """The text's in the data set."""
        return -self.rank[2]


class VariedTexts:
    """Keeps different texts of every label, whatever the number of texts seen.

    Every label has as many as the next, as far as it has that many different ones. One in
    ``WRONG_ONE_IN`` is classified wrongly, spread over labels likewise, where there are any. Of
    those that this leaves, the ones whose heads differ most are taken, as
    :class:`~fairseq_entmax.analysis.maps.MostDifferent` ranks them.

    Args:
        number: how many to keep.
    """

    def __init__(self, number: int) -> None:
        self._number = number
        # By label and whether it is classified wrongly, the best texts
        self._best: dict[tuple[int, bool], dict[tuple[int, ...], _Kept]] = {}

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
            texts: of each its tokens, without padding.
            labels: ``(batch,)``: the texts' classes.
            is_wrong: ``(batch,)`` bool: whether any model gives it another class.
        """
        rows = (ids.tolist(), differences.tolist(), texts, labels.tolist(), is_wrong.tolist())
        for number, difference, tokens, label, wrong in zip(*rows, strict=True):
            text = tuple(tokens)
            kept = self._best.setdefault((label, wrong), {})
            # Padding moves the last digits of how much heads differ
            rank = rank_of(number, round(difference, DIGITS), len(text))
            own = _Kept(rank, label, wrong)
            # Of the same text the first in the data set
            if text not in kept or own.number < kept[text].number:
                kept[text] = own
            if len(kept) > self._number:
                del kept[min(kept, key=lambda text: kept[text])]

    def sentences(self) -> list[int]:
        """The numbers of the texts kept: one of each label in turn, those that differ most first."""
        texts: dict[tuple[int, ...], _Kept] = {}
        for kept in self._best.values():
            for text, own in kept.items():
                # Some data has a text with two labels
                if text not in texts or own.number < texts[text].number:
                    texts[text] = own
        ranked = sorted(texts.values(), reverse=True)
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
            chosen.append(sorted(taken, reverse=True))
        turns = zip_longest(*chosen)
        return [one.number for turn in turns for one in turn if one is not None]


def dealt(sizes: Dictionary[int, int], number: int) -> dict[int, int]:
    """How many each gets of a number that is dealt out one by one, none more than its size."""
    shares = dict.fromkeys(sizes, 0)
    while number > 0 and any(shares[one] < size for one, size in sizes.items()):
        for one, size in sizes.items():
            if shares[one] < size and number > 0:
                shares[one] += 1
                number -= 1
    return shares


def _by_label(texts: Iterable[_Kept]) -> dict[int, list[_Kept]]:
    by_label: dict[int, list[_Kept]] = {}
    for one in texts:
        by_label.setdefault(one.label, []).append(one)
    return by_label
