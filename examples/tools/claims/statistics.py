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

BOOTSTRAP, DRAWS = 1000, 10_000
SHARE = 0.95  # of intervals
ORDERS = 4  # of n-grams in BLEU


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


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p-values of tests that belong together, in their order (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


# --- BLEU over sentences ------------------------------------------------------


@dataclass(frozen=True)
class Bootstrap:
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
        brevity = numpy.minimum(0.0, 1 - reference / hypothesis)
        found = 100 * numpy.exp(logs + brevity)
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
    drawn = numpy.random.RandomState(SEED).multinomial(
        sentences, numpy.full(sentences, 1 / sentences), size=BOOTSTRAP
    )
    as_they_are = numpy.ones((1, sentences), dtype=drawn.dtype)

    def difference(counts: Array) -> Array:
        pairs = zip(first, second, strict=True)
        return numpy.mean([bleu(counts @ one) - bleu(counts @ other) for one, other in pairs], 0)

    whole = float(difference(as_they_are)[0])
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
        """Of each seed, in their order."""
        return [self.by_seed[seed] for seed in sorted(self.by_seed)]

    @property
    def mean(self) -> float:
        """Over seeds."""
        return float(numpy.mean(self.values))


def strata_of(
    heads: Iterable[Head],
    group: Callable[[Head], Hashable],
    first: Callable[[Head], float],
    second: Callable[[Head], float],
) -> list[Stratum]:
    """Two numbers of heads, by their models and groups, such as layers."""
    groups: dict[tuple[int, Hashable], list[tuple[float, float]]] = {}
    for head in heads:
        groups.setdefault((head.run.seed, group(head)), []).append((first(head), second(head)))
    return [
        Stratum(seed, [one for one, _ in pairs], [other for _, other in pairs])
        for (seed, _), pairs in groups.items()
    ]


def rank_correlation(strata: Sequence[Stratum]) -> HeadStatistic | None:
    """Spearman's correlation within strata, for each seed the mean over its strata.

    Strata in which either number is the same for all heads say nothing; None of no others.
    """
    informative = [one for one in strata if _varies(one.first) and _varies(one.second)]

    def mean(own: Sequence[Stratum], random: numpy.random.RandomState | None) -> Array:
        return numpy.mean([_correlations(one, random) for one in own], axis=0)

    return _by_seed(informative, mean, chance=0.0)


def superiority(strata: Sequence[Stratum]) -> HeadStatistic | None:
    """How often a chosen head has more than one that is not, ties by half: the AUC within strata.

    ``second`` is 1 of chosen heads and 0 of others. It is the statistic of Mann and Whitney, summed
    over strata, over the number of pairs. None without strata that have heads of both kinds.
    """
    informative = [one for one in strata if _varies(one.second)]

    def share(own: Sequence[Stratum], random: numpy.random.RandomState | None) -> Array:
        wins = numpy.sum([_wins(one, random) for one in own], axis=0)
        return numpy.asarray(wins / sum(map(_pairs, own)))

    return _by_seed(informative, share, chance=0.5)


def concentration(strata: Sequence[Stratum]) -> HeadStatistic | None:
    """What the largest quarter of each stratum's heads have, against sticks broken at random.

    A stick that is broken at random into as many parts (Dirichlet with all parameters 1; MacArthur
    1957) is as uneven as parts are of which nothing is known but their sum.
    """
    informative = [one for one in strata if len(one.first) > 1]

    def share(own: Sequence[Stratum], random: numpy.random.RandomState | None) -> Array:
        rows = []
        for one in own:
            shares = numpy.asarray(one.first)
            parts = shares[numpy.newaxis] / shares.sum()
            if random is not None:
                parts = random.dirichlet(numpy.ones(len(shares)), DRAWS)
            rows.append(numpy.sort(parts, axis=1)[:, -_quarter(len(shares)) :].sum(axis=1))
        return numpy.mean(rows, axis=0)

    expected = [broken_stick_share(len(one.first)) for one in informative]
    return _by_seed(informative, share, float(numpy.mean(expected)) if expected else 0.0)


def broken_stick_share(parts: int) -> float:
    """What the largest quarter of a stick broken at random into so many parts has on average."""
    lengths = [sum(1 / n for n in range(rank, parts + 1)) / parts for rank in range(1, parts + 1)]
    return float(sum(lengths[: _quarter(parts)]))


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
    for draw in informative:
        counts = numpy.arange(draw.chosen + 1)
        chances = stats.hypergeom.pmf(counts, draw.heads, draw.marked, draw.chosen)
        distribution = numpy.convolve(distribution, chances)
    observed = sum(draw.both for draw in informative)
    by_seed = {
        draw.seed: draw.both / draw.marked - (draw.chosen - draw.both) / (draw.heads - draw.marked)
        for draw in informative
    }
    more, fewer = distribution[observed:].sum(), distribution[: observed + 1].sum()
    return HeadStatistic(by_seed, 0.0, min(1.0, float(more)), min(1.0, float(fewer)))


def _by_seed(
    strata: Sequence[Stratum],
    statistic: Callable[[Sequence[Stratum], numpy.random.RandomState | None], Array],
    chance: float,
) -> HeadStatistic | None:
    """A statistic of each seed's strata, and p of as many draws by chance, combined over seeds."""
    values, greater, less = {}, [], []
    for seed in sorted({one.seed for one in strata}):
        own = [one for one in strata if one.seed == seed]
        values[seed] = float(statistic(own, None)[0])
        drawn = statistic(own, numpy.random.RandomState(SEED))
        # What was observed is one of the possible draws, so p is never 0
        greater.append(float(1 + (drawn >= values[seed] - 1e-12).sum()) / (1 + DRAWS))
        less.append(float(1 + (drawn <= values[seed] + 1e-12).sum()) / (1 + DRAWS))
    return HeadStatistic(values, chance, combined_p(greater), combined_p(less)) if values else None


def _quarter(heads: int) -> int:
    return max(1, round(heads / 4))


def _varies(values: Sequence[float]) -> bool:
    return len(set(values)) > 1


def _orders(values: Array, random: numpy.random.RandomState | None) -> Array:
    """The values as they are, or in as many random orders as there are draws, one a row."""
    if random is None:
        return values[numpy.newaxis]
    places = random.random_sample((DRAWS, len(values))).argsort(axis=1, kind="stable")
    return numpy.asarray(values[places])


def _correlations(stratum: Stratum, random: numpy.random.RandomState | None) -> Array:
    def scaled(values: Sequence[float]) -> Array:
        ranks = stats.rankdata(values) - (len(values) + 1) / 2
        return numpy.asarray(ranks / numpy.sqrt((ranks**2).sum()))

    return numpy.asarray(_orders(scaled(stratum.second), random) @ scaled(stratum.first))


def _wins(stratum: Stratum, random: numpy.random.RandomState | None) -> Array:
    """Of the pairs of a chosen and another head, those in which the chosen one has more."""
    chosen = numpy.asarray(stratum.second, dtype=numpy.float64)
    number = chosen.sum()
    sums = _orders(chosen, random) @ stats.rankdata(stratum.first)
    return numpy.asarray(sums - number * (number + 1) / 2)


def _pairs(stratum: Stratum) -> float:
    number = sum(stratum.second)
    return number * (len(stratum.second) - number)
