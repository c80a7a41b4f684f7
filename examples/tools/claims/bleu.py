"""Differences in BLEU between kinds of runs, over seeds and over sentences."""

from __future__ import annotations

from collections.abc import Sequence

from claims.record import Run
from claims.statistics import Bootstrap, paired_bootstrap

Pairs = Sequence[tuple[Run, Run]]


def difference(pairs: Pairs) -> tuple[list[float], Bootstrap]:
    """BLEU of the first less the second, of each pair, and its mean over resampled sentences."""
    firsts, seconds = [one for one, _ in pairs], [other for _, other in pairs]
    each = [one.bleu - other.bleu for one, other in pairs]
    return each, paired_bootstrap(
        [run.sentences for run in firsts], [run.sentences for run in seconds]
    )


def difference_of_differences(first: Pairs, second: Pairs) -> tuple[list[float], Bootstrap]:
    """What a change costs the one kind, less what it costs the other, of each seed.

    Args:
        first: a changed and an unchanged run of each seed.
        second: of the other kind, with the same seeds.
    """
    both = [*first, *((unchanged, changed) for changed, unchanged in second)]
    halves = paired_bootstrap([one.sentences for one, _ in both], [b.sentences for _, b in both])
    each = [
        (a.bleu - b.bleu) - (c.bleu - d.bleu) for (a, b), (c, d) in zip(first, second, strict=True)
    ]
    # The mean over twice as many pairs is half the difference
    found = Bootstrap(2 * halves.difference, 2 * halves.low, 2 * halves.high, halves.p)
    return each, found
