"""Whether values have one mode or two: Hartigan's dip test, and a mixture of two Gaussians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy
from diptest import dipstat

Array = numpy.ndarray[Any, Any]
SEED = 1
SIMULATED = 2000  # samples of one mode
POWERED = 300  # samples of two modes: a power of 0.8 is known to within 0.05
STARTS = 10  # of the expectation maximisation; the likeliest fit is taken


@dataclass(frozen=True)
class Mixture:
    """A mixture of two Gaussians: its gain in BIC over one, and the modes of its density."""

    gain: float
    means: tuple[float, float]
    shares: tuple[float, float]
    modes: int

    @property
    def bimodal(self) -> bool:
        return self.gain > 0 and self.modes == 2


@lru_cache(maxsize=64)
def _simulated_dips(count: int) -> Array:
    generator = numpy.random.RandomState(SEED)
    return numpy.array([dipstat(generator.random_sample(count)) for _ in range(SIMULATED)])


def dip_test(values: Sequence[float]) -> tuple[float, float]:
    """Hartigan's dip test: the dip, and p from samples of the uniform distribution."""
    found = float(dipstat(numpy.asarray(values)))
    beyond = int((_simulated_dips(len(values)) >= found).sum())
    return found, (beyond + 1) / (SIMULATED + 1)


def dip_power(means: tuple[float, float], deviation: float, count: int) -> float:
    """How often the dip test at 0.05 finds two modes in `count` values of two equal Gaussians."""
    null = numpy.sort(_simulated_dips(count))
    generator = numpy.random.RandomState(SEED)
    upper = generator.random_sample((POWERED, count)) < 0.5
    drawn = numpy.where(upper, means[1], means[0])
    drawn = drawn + deviation * generator.standard_normal((POWERED, count))
    dips = numpy.array([dipstat(row) for row in drawn])
    beyond = SIMULATED - numpy.searchsorted(null, dips)
    return float(numpy.mean((beyond + 1) / (SIMULATED + 1) < 0.05))


def mixture_fit(values: Sequence[float]) -> Mixture:
    x = numpy.asarray(values, dtype=numpy.float64)
    generator = numpy.random.RandomState(SEED)
    one = float(_log_density(x, x.mean(), x.std()).sum())
    starts = [numpy.sort(generator.choice(x, 2, replace=False)) for _ in range(STARTS)]
    fits = [_fit(x, start) for start in starts]
    likelihood, means, deviations, shares = max(fits, key=lambda fit: fit[0])
    log_n = math.log(len(x))
    lower, upper = (int(place) for place in numpy.argsort(means))
    return Mixture(
        2 * log_n - 2 * one - (5 * log_n - 2 * likelihood),
        (float(means[lower]), float(means[upper])),
        (float(shares[lower]), float(shares[upper])),
        _modes(means, deviations, shares),
    )


def _log_density(x: Array, mean: Any, deviation: Any) -> Any:
    return -0.5 * ((x - mean) / deviation) ** 2 - numpy.log(deviation * math.sqrt(2 * math.pi))


def _fit(x: Array, means: Array) -> tuple[float, Array, Array, Array]:
    """Run expectation maximisation from these means; return log-likelihood and parameters."""
    # Without a minimum deviation, a component on a single value would be infinitely likely
    least = 0.05 * float(x.std())
    deviations, shares = numpy.full(2, x.std()), numpy.full(2, 0.5)
    last = -math.inf
    for _ in range(500):
        logs = numpy.log(shares) + _log_density(x[:, None], means, deviations)
        rows = numpy.logaddexp(logs[:, 0], logs[:, 1])
        likelihood = float(rows.sum())
        if likelihood - last < 1e-8:
            break
        last = likelihood
        weights = numpy.exp(logs - rows[:, None])
        counts = numpy.maximum(weights.sum(0), 1e-9)
        shares = counts / counts.sum()
        means = (weights * x[:, None]).sum(0) / counts
        spread = (weights * (x[:, None] - means) ** 2).sum(0) / counts
        deviations = numpy.maximum(numpy.sqrt(spread), least)
    return likelihood, means, deviations, shares


def _modes(means: Array, deviations: Array, shares: Array) -> int:
    """The number of maxima of the density, which all lie between the means."""
    grid = numpy.linspace(means.min(), means.max(), 2001)
    density = (shares * numpy.exp(_log_density(grid[:, None], means, deviations))).sum(1)
    padded = numpy.concatenate([[-1.0], density, [-1.0]])
    rises = (padded[1:-1] > padded[:-2]) & (padded[1:-1] >= padded[2:])
    return max(1, int(rises.sum()))
