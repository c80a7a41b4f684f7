"""Intervals and tests, seeded: the same values give the same numbers on every machine.

The generator is numpy's older one, whose numbers are the same in all releases. Heads are only
compared within a stratum, such as a layer, where they are exchangeable under the null hypothesis. So
p-values come from permuting heads within strata for each model, and are combined over models by
Fisher's method.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy
from scipy import stats

from claims.modes import SEED, Array
from claims.record import Head
from fairseq_entmax.paired_tests import holm as holm

BOOTSTRAP, DRAWS = 1000, 10_000
SHARE = 0.95  # of intervals
ORDERS = 4  # of n-grams in BLEU
Random = numpy.random.RandomState


def seed_interval(values: Collection[float]) -> tuple[float, float]:
    """Student's 95 % t interval of the mean over seeds; (nan, nan) for fewer than two."""
    if len(values) < 2:
        return math.nan, math.nan
    centre = float(numpy.mean(list(values)))
    error = float(numpy.std(list(values), ddof=1)) / math.sqrt(len(values))
    reach = float(stats.t.ppf((1 + SHARE) / 2, len(values) - 1)) * error
    return centre - reach, centre + reach


def combined_p(p_values: Collection[float]) -> float:
    """The combined p-value of tests of one hypothesis on independent seeds (Fisher's method)."""
    return float(stats.combine_pvalues(list(p_values), method="fisher")[1])


# --- BLEU over sentences ------------------------------------------------------


class Bootstrap(NamedTuple):
    """A difference, with its 95 % interval and two-sided p over resampled sentences."""

    difference: float
    low: float
    high: float
    p: float


def bleu(sums: Array) -> Array:
    """Corpus BLEU in percent, smoothed as in sacreBLEU, from sums (..., 10) of sufficient statistics:
    lengths of the hypotheses and the references, then matches and numbers of 1-grams to 4-grams."""
    sums = numpy.asarray(sums, dtype=numpy.float64)
    hypothesis, reference = sums[..., 0], sums[..., 1]
    correct, total = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    # Each further order without a match counts half as much as the one before
    halvings = numpy.cumsum(correct == 0, axis=-1)
    smoothed = numpy.where(correct == 0, 0.5**halvings, correct)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        logs = numpy.log(smoothed / total).mean(axis=-1)
        found = 100 * numpy.exp(logs + numpy.minimum(0.0, 1 - reference / hypothesis))
    empty = (correct.sum(axis=-1) == 0) | (total == 0).any(axis=-1)
    return numpy.where(empty, 0.0, found)


def paired_bootstrap(first: Sequence[Array], second: Sequence[Array]) -> Bootstrap:
    """The mean over seeds of the difference in BLEU between two models, over resampled sentences.

    `first` and `second` have sufficient statistics (sentences, 10) for each seed; each sample draws
    the same sentences for all. p is the share of samples whose difference is as far from the samples'
    mean, on either side, as the whole difference is from 0 (Koehn 2004; a shifted bootstrap, Efron
    and Tibshirani 1993, chapter 16). sacreBLEU shifts the absolute differences instead, and so rejects
    about twice as often as its level says.
    """
    sentences = len(first[0])
    drawn = Random(SEED).multinomial(
        sentences, numpy.full(sentences, 1 / sentences), size=BOOTSTRAP
    )

    def difference(counts: Array) -> Array:
        pairs = zip(first, second, strict=True)
        return numpy.mean([bleu(counts @ one) - bleu(counts @ other) for one, other in pairs], 0)

    whole = float(difference(numpy.ones((1, sentences), dtype=drawn.dtype))[0])
    resampled = difference(drawn)
    low, high = numpy.quantile(resampled, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    beyond = int((numpy.abs(resampled - resampled.mean()) >= abs(whole)).sum())
    return Bootstrap(whole, float(low), float(high), (beyond + 1) / (BOOTSTRAP + 1))


# --- heads within strata ------------------------------------------------------


class Stratum(NamedTuple):
    """Two numbers for each head in one stratum of one seed's model."""

    seed: int
    first: Sequence[float]
    second: Sequence[float]


class Draw(NamedTuple):
    """Counts of the heads of one seed's model: all, marked, chosen, and both marked and chosen."""

    seed: int
    heads: int
    marked: int
    chosen: int
    both: int


@dataclass(frozen=True)
class HeadStatistic:
    """A statistic over the heads of each seed's model, its value by chance alone, and p over all
    seeds of values at least as high (`greater`) and at most as high (`less`)."""

    values: list[float]
    chance: float
    greater: float
    less: float

    @property
    def mean(self) -> float:
        return float(numpy.mean(self.values))


def strata_of(
    heads: Iterable[Head],
    group: Callable[[Head], Hashable],
    first: Callable[[Head], float],
    second: Callable[[Head], float],
) -> list[Stratum]:
    """Two numbers of each head, grouped by model and by groups such as layers."""
    groups: dict[tuple[int, Hashable], list[Head]] = {}
    for head in heads:
        groups.setdefault((head.run.seed, group(head)), []).append(head)
    return [
        Stratum(seed, [*map(first, own)], [*map(second, own)]) for (seed, _), own in groups.items()
    ]


def rank_correlation(strata: Sequence[Stratum]) -> HeadStatistic | None:
    """Spearman's correlation within strata, averaged over the strata of each seed.

    Strata in which either number is the same for all heads are left out; None if none remain.
    """

    def correlations(one: Stratum, random: Random | None) -> Array:
        first, second = (stats.rankdata(own) - (len(own) + 1) / 2 for own in one[1:])
        scale = numpy.sqrt((first**2).sum()) * numpy.sqrt((second**2).sum())
        return _orders(second, random) @ first / scale

    informative = [one for one in strata if min(len(set(one.first)), len(set(one.second))) > 1]
    return _by_seed(informative, correlations, 0.0)


def superiority(strata: Sequence[Stratum]) -> HeadStatistic | None:
    """How often a chosen head has more than one that is not; ties count half. The AUC within strata.

    ``second`` is 1 for chosen heads and 0 for others. This is Mann and Whitney's statistic, summed
    over strata, divided by the number of pairs. None without strata that have both kinds of heads.
    """

    def pairs(one: Stratum) -> float:
        return sum(one.second) * (len(one.second) - sum(one.second))

    def share(one: Stratum, random: Random | None) -> Array:
        chosen = numpy.asarray(one.second, dtype=numpy.float64)
        number = chosen.sum()
        sums = _orders(chosen, random) @ stats.rankdata(one.first)
        return (sums - number * (number + 1) / 2) / pairs(one)

    return _by_seed([one for one in strata if pairs(one)], share, 0.5, pairs)


def chosen_more_often(draws: Sequence[Draw]) -> HeadStatistic | None:
    """How much more often marked heads are chosen than others, as a difference of shares.

    Under the null hypothesis the chosen heads are a random sample of a model's heads (Fisher's exact
    test). Counts are added up over models, and p comes from the exact distribution of the sum. None
    without models that have both marked heads and others.
    """
    informative = [draw for draw in draws if 0 < draw.marked < draw.heads]
    if not informative:
        return None
    distribution = numpy.ones(1)
    values = []
    for _, heads, marked, chosen, both in informative:
        chances = stats.hypergeom.pmf(numpy.arange(chosen + 1), heads, marked, chosen)
        distribution = numpy.convolve(distribution, chances)
        values.append(both / marked - (chosen - both) / (heads - marked))
    observed = sum(draw.both for draw in informative)
    more, fewer = distribution[observed:].sum(), distribution[: observed + 1].sum()
    return HeadStatistic(values, 0.0, min(1.0, float(more)), min(1.0, float(fewer)))


def _by_seed(
    strata: Sequence[Stratum],
    statistic: Callable[[Stratum, Random | None], Array],
    chance: float,
    weight: Callable[[Stratum], float] = lambda one: 1.0,
) -> HeadStatistic | None:
    """The mean over each seed's strata, and p from random draws, combined over seeds."""
    values, greater, less = [], [], []
    for seed in sorted({one.seed for one in strata}):
        own = [one for one in strata if one.seed == seed]
        weights = list(map(weight, own))
        observed, drawn = (
            numpy.average([statistic(one, random) for one in own], axis=0, weights=weights)
            for random in (None, Random(SEED))
        )
        values.append(float(observed[0]))
        # The observation is one of the possible draws, so p is never 0
        greater.append(float(1 + (drawn >= values[-1] - 1e-12).sum()) / (1 + DRAWS))
        less.append(float(1 + (drawn <= values[-1] + 1e-12).sum()) / (1 + DRAWS))
    return HeadStatistic(values, chance, combined_p(greater), combined_p(less)) if values else None


def _orders(values: Array, random: Random | None) -> Array:
    """The values in one row; with a generator, `DRAWS` rows of them in random orders."""
    if random is None:
        return values[numpy.newaxis]
    return values[random.random_sample((DRAWS, len(values))).argsort(axis=1, kind="stable")]
