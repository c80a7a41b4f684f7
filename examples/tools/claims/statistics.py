"""Intervals and tests, seeded: the same values give the same numbers on every machine.

The generator is numpy's older one, whose numbers stay the same in all of its releases.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy
from scipy import stats

from claims.modes import SEED, Array, Mixture, dip, dip_power, dip_test, mixture_fit

__all__ = ["Mixture", "dip", "dip_power", "dip_test", "mixture_fit"]

BOOTSTRAP = 1000  # samples
SHARE = 0.95  # of intervals
ORDERS = 4  # of n-grams in BLEU
EXACT = 7  # values of which all orders are gone through


@dataclass(frozen=True)
class Bootstrap:
    """A difference over resampled sentences.

    Attributes:
        difference: on the sentences as they are.
        low, high: its 95 % interval, from percentiles.
        p: two-sided, in [1 / (samples + 1), 1].
    """

    difference: float
    low: float
    high: float
    p: float


def seed_interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's t interval of 95 % of the mean of a value over seeds.

    Returns:
        low and high; (nan, nan) of fewer than two values.
    """
    if len(values) < 2:
        return math.nan, math.nan
    centre = float(numpy.mean(values))
    error = float(numpy.std(values, ddof=1)) / math.sqrt(len(values))
    reach = float(stats.t.ppf((1 + SHARE) / 2, len(values) - 1)) * error
    return centre - reach, centre + reach


def bleu(sums: Array) -> Array:
    """Corpus BLEU in percent from sums of sufficient statistics, as sacreBLEU has it.

    Args:
        sums: (..., 10): lengths of the hypotheses and the references, then matches and numbers of
            1-grams to 4-grams.

    Returns:
        (...), with sacreBLEU's exponential smoothing of orders without a match.
    """
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


def paired_bootstrap(
    first: Sequence[Array], second: Sequence[Array], samples: int = BOOTSTRAP, seed: int = SEED
) -> Bootstrap:
    """The difference in BLEU of two kinds of models, its mean over seeds, over test sentences.

    In each sample the same sentences are drawn for all models.

    Args:
        first: sufficient statistics (sentences, 10) of a model of each seed.
        second: of as many models of the other kind, on the same sentences.
        samples: how often as many sentences are drawn as there are.
        seed: of the draws.

    Returns:
        the first less the second. p is the share of samples whose difference is at least as far
        from their mean, on either side, as the whole difference is from 0; the observed one is
        counted among them. It is 1 where both have the same BLEU.

    Raises:
        ValueError: there are no models, or they cannot be paired.

    Source: Koehn 2004; p as of a shifted bootstrap, Efron and Tibshirani 1993, chapter 16.
    sacreBLEU shifts the sizes of the differences instead of the differences, which rejects about
    twice as often as it says.
    """
    shapes = {numpy.shape(entry) for entry in (*first, *second)}
    if not first or len(first) != len(second) or len(shapes) != 1:
        raise ValueError(
            f"a paired bootstrap needs as many models on both sides, with the same sentences: "
            f"{len(first)} and {len(second)} models of {sorted(shapes)}"
        )
    sentences = shapes.pop()[0]
    drawn = numpy.random.RandomState(seed).multinomial(
        sentences, numpy.full(sentences, 1 / sentences), size=samples
    )
    as_they_are = numpy.ones((1, sentences), dtype=drawn.dtype)

    def difference(counts: Array) -> Array:
        pairs = zip(first, second, strict=True)
        return numpy.mean([bleu(counts @ one) - bleu(counts @ other) for one, other in pairs], 0)

    whole = float(difference(as_they_are)[0])
    resampled = difference(drawn)
    low, high = numpy.quantile(resampled, [(1 - SHARE) / 2, (1 + SHARE) / 2])
    beyond = int((numpy.abs(resampled - resampled.mean()) >= abs(whole)).sum())
    return Bootstrap(whole, float(low), float(high), (beyond + 1) / (samples + 1))


def combined_p(p_values: Sequence[float]) -> float:
    """One p-value of tests of the same hypothesis on independent seeds (Fisher's method).

    Args:
        p_values: one-sided, above 0, one or more.
    """
    return float(stats.combine_pvalues(list(p_values), method="fisher")[1])


def spearman(
    first: Sequence[float], second: Sequence[float], alternative: str = "greater"
) -> tuple[float, float]:
    """Spearman's rank correlation and p, by permutation where values are few.

    Args:
        alternative: ``greater``, ``less`` or ``two-sided``.

    Returns:
        correlation in [-1, 1] and p; (0, 1) where either side has no two values that differ.
    """
    if len(set(first)) < 2 or len(set(second)) < 2:
        return 0.0, 1.0
    rho, p = stats.spearmanr(first, second, alternative=alternative)
    if len(first) > EXACT:
        return float(rho), float(p)

    def statistic(order: Array) -> Any:
        return stats.spearmanr(order, second)[0]

    exact = stats.permutation_test(
        (numpy.asarray(first),),
        statistic,
        permutation_type="pairings",
        alternative=alternative,
        n_resamples=math.inf,
        vectorized=False,
    )
    return float(rho), float(exact.pvalue)


def mann_whitney(
    first: Sequence[float], second: Sequence[float], alternative: str = "greater"
) -> float:
    """p of the Mann-Whitney test, exact where values are few and differ.

    Args:
        alternative: ``greater`` where the first should be higher.

    Returns:
        1 where either is empty.
    """
    if not first or not second:
        return 1.0
    return float(stats.mannwhitneyu(first, second, alternative=alternative, method="auto").pvalue)


def fisher_exact(table: Sequence[Sequence[int]], alternative: str = "greater") -> float:
    """p of Fisher's exact test of a table of two rows and two columns."""
    return float(stats.fisher_exact(numpy.asarray(table), alternative=alternative)[1])


def binomial(successes: int, trials: int, chance: float, alternative: str = "greater") -> float:
    """p of the binomial test; 1 of no trials."""
    if trials == 0:
        return 1.0
    return float(stats.binomtest(successes, trials, chance, alternative=alternative).pvalue)
