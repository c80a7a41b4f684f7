"""Tests over heads that are compared only with heads of their own stratum.

Relevance is a share of its layer, and every model has an order of its own, so heads are compared
within layers, or within one attention of one model. Under the null hypothesis the heads of a
stratum are exchangeable: p-values are of heads permuted within strata, seeded as all of
:mod:`claims.statistics`, for each model, and combined over models by Fisher's method; counts have
an exact distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy
from scipy import stats

from claims.statistics import SEED, combined_p

DRAWS = 10_000
QUARTER = 0.25

Array = numpy.ndarray[Any, Any]


@dataclass(frozen=True)
class Stratum:
    """Two numbers of each head, whose relation is asked for.

    Attributes:
        seed: of the model.
        first, second: a number for each head, as many of both.
    """

    seed: int
    first: Sequence[float]
    second: Sequence[float]


@dataclass(frozen=True)
class HeadStatistic:
    """A statistic over heads, of each model and of all.

    Attributes:
        by_seed: its value for the model of each seed.
        chance: the value that is expected without any relation.
        greater, less: p-values of one side each over all seeds: of values as high, or as low.
    """

    by_seed: dict[int, float]
    chance: float
    greater: float
    less: float

    @property
    def values(self) -> list[float]:
        """Of each seed, in their order."""
        return [self.by_seed[seed] for seed in sorted(self.by_seed)]

    @property
    def above_chance(self) -> list[float]:
        """Of each seed, less what is expected without any relation."""
        return [value - self.chance for value in self.values]


class Draw(NamedTuple):
    """The heads of one model, of which some are marked and some are chosen.

    Attributes:
        seed: of the model.
        heads: in all.
        marked, chosen: how many of them.
        both: how many are marked and chosen.
    """

    seed: int
    heads: int
    marked: int
    chosen: int
    both: int


_Part = TypeVar("_Part")


def strata_of(seed: int, heads: Sequence[tuple[Hashable, float, float]]) -> list[Stratum]:
    """Strata of one model.

    Args:
        heads: of each head its stratum, such as its layer, and two numbers.
    """
    groups: dict[Hashable, list[tuple[float, float]]] = {}
    for group, first, second in heads:
        groups.setdefault(group, []).append((first, second))
    return [
        Stratum(seed, [first for first, _ in pairs], [second for _, second in pairs])
        for pairs in groups.values()
    ]


def rank_correlation(strata: Sequence[Stratum]) -> HeadStatistic | None:
    """Spearman's correlation within strata, for each seed the mean over its strata.

    Strata in which either number is the same for all heads say nothing and are left out; None
    where no other is left.
    """
    informative = [one for one in strata if _varies(one.first) and _varies(one.second)]

    def mean(own: Sequence[Stratum], random: numpy.random.RandomState | None) -> Array:
        return numpy.mean([_correlations(one, random) for one in own], axis=0)

    return _by_seed(informative, lambda one: one.seed, mean, chance=0.0)


def superiority(strata: Sequence[Stratum]) -> HeadStatistic | None:
    """How often a chosen head has more than one that is not, ties by half: the AUC within strata.

    ``first`` is the number, and ``second`` is 1 of chosen heads and 0 of others. It is the
    statistic of Mann and Whitney, summed over the strata of a seed and divided by the number of
    pairs. Strata without heads of both kinds are left out; None where no other is left.
    """
    informative = [one for one in strata if _varies(one.second)]

    def share(own: Sequence[Stratum], random: numpy.random.RandomState | None) -> Array:
        wins = numpy.sum([_wins(one, random) for one in own], axis=0)
        return numpy.asarray(wins / sum(map(_pairs, own)))

    return _by_seed(informative, lambda one: one.seed, share, chance=0.5)


def concentration(layers: Sequence[tuple[int, Sequence[float]]]) -> HeadStatistic | None:
    """What the largest quarter of each layer's heads have, against sticks broken at random.

    Equal heads would be no reference: any two heads differ. A stick that is broken at random
    into as many parts (the uniform distribution on the simplex, Dirichlet with all parameters 1)
    is as uneven as parts are of which nothing is known but their sum.

    Args:
        layers: a seed, and a number of each head, none below 0, of which one is above.

    Returns:
        The mean over layers of the share of the whole; None without layers of two heads or more.

    Source: MacArthur 1957, *On the Relative Abundance of Bird Species*.
    """
    informative = [(seed, numpy.asarray(shares)) for seed, shares in layers if len(shares) > 1]

    def share(own: Sequence[tuple[int, Array]], random: numpy.random.RandomState | None) -> Array:
        rows = []
        for _, shares in own:
            parts = shares[numpy.newaxis] / shares.sum()
            if random is not None:
                parts = random.dirichlet(numpy.ones(len(shares)), DRAWS)
            rows.append(numpy.sort(parts, axis=1)[:, -_quarter(len(shares)) :].sum(axis=1))
        return numpy.mean(rows, axis=0)

    expected = [broken_stick_share(len(shares), _quarter(len(shares))) for _, shares in informative]
    chance = float(numpy.mean(expected)) if expected else 0.0
    return _by_seed(informative, lambda one: one[0], share, chance)


def broken_stick_share(parts: int, largest: int) -> float:
    """What the largest parts of a stick broken at random into so many parts have on average."""
    lengths = [sum(1 / n for n in range(rank, parts + 1)) / parts for rank in range(1, parts + 1)]
    return float(sum(lengths[:largest]))


def chosen_more_often(draws: Sequence[Draw]) -> HeadStatistic | None:
    """How much more often marked heads are chosen than others, as a difference of shares.

    Under the null hypothesis the chosen of a model are any of its heads: Fisher's exact test. Of
    several models, the counts are added up, and the p-values are of the exact distribution of
    their sum. Models in which all heads are marked, or none, are left out; None where no other is
    left.
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
    parts: Sequence[_Part],
    seed_of: Callable[[_Part], int],
    statistic: Callable[[Sequence[_Part], numpy.random.RandomState | None], Array],
    chance: float,
) -> HeadStatistic | None:
    """A statistic of each seed's parts, and p of as many draws by chance, combined over seeds."""
    values, greater, less = {}, [], []
    for seed in sorted({seed_of(part) for part in parts}):
        own = [part for part in parts if seed_of(part) == seed]
        values[seed] = float(statistic(own, None)[0])
        drawn = statistic(own, numpy.random.RandomState(SEED))
        # What was observed is one of the possible draws, so p is never 0
        greater.append(float(1 + (drawn >= values[seed] - 1e-12).sum()) / (1 + DRAWS))
        less.append(float(1 + (drawn <= values[seed] + 1e-12).sum()) / (1 + DRAWS))
    return HeadStatistic(values, chance, combined_p(greater), combined_p(less)) if values else None


def _quarter(heads: int) -> int:
    return max(1, round(QUARTER * heads))


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
