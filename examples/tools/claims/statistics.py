"""Intervals and tests, seeded: the same values give the same numbers on every machine.

The generator is numpy's older one, whose numbers stay the same in all of its releases. Heads are
compared only with heads of their own stratum, such as a layer: under the null hypothesis they are
exchangeable there, so p-values are of heads permuted within strata for each model, combined over
models by Fisher's method.
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
    """Student's t interval of 95 % of the mean over seeds; (nan, nan) of fewer than two."""
    if len(values) < 2:
        return math.nan, math.nan
    centre = float(numpy.mean(list(values)))
    error = float(numpy.std(list(values), ddof=1)) / math.sqrt(len(values))
    reach = float(stats.t.ppf((1 + SHARE) / 2, len(values) - 1)) * error
    return centre - reach, centre + reach


def combined_p(p_values: Collection[float]) -> float:
    """One p-value of tests of the same hypothesis on independent seeds (Fisher's method)."""
    return float(stats.combine_pvalues(list(p_values), method="fisher")[1])


# --- BLEU over sentences ------------------------------------------------------


class Bootstrap(NamedTuple):
    """A difference over resampled sentences: itself, its 95 % interval, and p, two-sided."""

    difference: float
    low: float
    high: float
    p: float


def bleu(sums: Array) -> Array:
    """Corpus BLEU in percent from sums (..., 10) of sufficient statistics, smoothed as sacreBLEU does:
    lengths of the hypotheses and the references, then matches and numbers of 1-grams to 4-grams."""
    sums = numpy.asarray(sums, dtype=numpy.float64)
    hypothesis, reference = sums[..., 0], sums[..., 1]
    correct, total = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    # The k-th order without a match counts as half the match of the one before
    halvings = numpy.cumsum(correct == 0, axis=-1)
    smoothed = numpy.where(correct == 0, 0.5**halvings, correct)
    with numpy.errstate(divide="ignore", invalid="ignore"):
        logs = numpy.log(smoothed / total).mean(axis=-1)
        found = 100 * numpy.exp(logs + numpy.minimum(0.0, 1 - reference / hypothesis))
    empty = (correct.sum(axis=-1) == 0) | (total == 0).any(axis=-1)
    return numpy.where(empty, 0.0, found)


def paired_bootstrap(first: Sequence[Array], second: Sequence[Array]) -> Bootstrap:
    """The difference in BLEU of two kinds of models, its mean over seeds, over test sentences.

    Of each are sufficient statistics (sentences, 10) of a model of each seed; in each sample the same
    sentences are drawn for all. p is the share of samples whose difference is as far from their mean,
    on either side, as the whole difference is from 0 (Koehn 2004; a shifted bootstrap, Efron and
    Tibshirani 1993, chapter 16). sacreBLEU shifts the sizes of the differences instead of the
    differences, which rejects about twice as often as it says.
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
    """Two numbers of each head of a stratum of the model of a seed."""

    seed: int
    first: Sequence[float]
    second: Sequence[float]


class Draw(NamedTuple):
    """The heads of the model of a seed, of which some are marked, some are chosen, and some both."""

    seed: int
    heads: int
    marked: int
    chosen: int
    both: int


@dataclass(frozen=True)
class HeadStatistic:
    """A statistic over heads of the model of each seed, what chance alone makes it, and p of all
    seeds: of values as high, and as low."""

    by_seed: dict[int, float]
    chance: float
    greater: float
    less: float

    @property
    def values(self) -> list[float]:
        return [self.by_seed[seed] for seed in sorted(self.by_seed)]

    @property
    def mean(self) -> float:
        return float(numpy.mean(self.values))


def strata_of(
    heads: Iterable[Head],
    group: Callable[[Head], Hashable],
    first: Callable[[Head], float],
    second: Callable[[Head], float],
) -> list[Stratum]:
    """Two numbers of heads, by their models and groups, such as layers."""
    groups: dict[tuple[int, Hashable], list[Head]] = {}
    for head in heads:
        groups.setdefault((head.run.seed, group(head)), []).append(head)
    return [
        Stratum(seed, [*map(first, own)], [*map(second, own)]) for (seed, _), own in groups.items()
    ]


def rank_correlation(strata: Sequence[Stratum]) -> HeadStatistic | None:
    """Spearman's correlation within strata, for each seed the mean over its strata.

    Strata in which either number is the same for all heads say nothing; None of no others.
    """

    def correlations(one: Stratum, random: Random | None) -> Array:
        first, second = (stats.rankdata(own) - (len(own) + 1) / 2 for own in one[1:])
        scale = numpy.sqrt((first**2).sum()) * numpy.sqrt((second**2).sum())
        return _orders(second, random) @ first / scale

    informative = [one for one in strata if min(len(set(one.first)), len(set(one.second))) > 1]
    return _by_seed(informative, correlations, 0.0)


def superiority(strata: Sequence[Stratum]) -> HeadStatistic | None:
    """How often a chosen head has more than one that is not, ties by half: the AUC within strata.

    ``second`` is 1 of chosen heads and 0 of others. It is the statistic of Mann and Whitney, summed
    over strata, over the number of pairs. None without strata that have heads of both kinds.
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

    Under the null hypothesis the chosen of a model are any of its heads: Fisher's exact test. Of
    several models the counts are added up, and p is of the exact distribution of their sum. None
    without models that have marked heads and others.
    """
    informative = [draw for draw in draws if 0 < draw.marked < draw.heads]
    if not informative:
        return None
    distribution = numpy.ones(1)
    by_seed = {}
    for seed, heads, marked, chosen, both in informative:
        chances = stats.hypergeom.pmf(numpy.arange(chosen + 1), heads, marked, chosen)
        distribution = numpy.convolve(distribution, chances)
        by_seed[seed] = both / marked - (chosen - both) / (heads - marked)
    observed = sum(draw.both for draw in informative)
    more, fewer = distribution[observed:].sum(), distribution[: observed + 1].sum()
    return HeadStatistic(by_seed, 0.0, min(1.0, float(more)), min(1.0, float(fewer)))


def _by_seed(
    strata: Sequence[Stratum],
    statistic: Callable[[Stratum, Random | None], Array],
    chance: float,
    weight: Callable[[Stratum], float] = lambda one: 1.0,
) -> HeadStatistic | None:
    """A mean over each seed's strata, and p of as many draws by chance, combined over seeds."""
    values, greater, less = {}, [], []
    for seed in sorted({one.seed for one in strata}):
        own = [one for one in strata if one.seed == seed]
        weights = list(map(weight, own))
        observed, drawn = (
            numpy.average([statistic(one, random) for one in own], axis=0, weights=weights)
            for random in (None, Random(SEED))
        )
        values[seed] = float(observed[0])
        # What was observed is one of the possible draws, so p is never 0
        greater.append(float(1 + (drawn >= values[seed] - 1e-12).sum()) / (1 + DRAWS))
        less.append(float(1 + (drawn <= values[seed] + 1e-12).sum()) / (1 + DRAWS))
    return HeadStatistic(values, chance, combined_p(greater), combined_p(less)) if values else None


def _orders(values: Array, random: Random | None) -> Array:
    """The values as they are, or in as many random orders as there are draws, one a row."""
    if random is None:
        return values[numpy.newaxis]
    return values[random.random_sample((DRAWS, len(values))).argsort(axis=1, kind="stable")]
