"""The dip test against linear programmes; mixtures against what was mixed."""

from __future__ import annotations

import numpy
import pytest
from claims.modes import dip, dip_power, dip_test, mixture_fit
from scipy.optimize import linprog
from scipy.stats import norm


def _brute_force(values):
    """The least distance to a unimodal distribution, the mode being at each value in turn.

    Before the mode the distribution is convex, behind it concave, and at it it may jump.
    """
    x, counts = numpy.unique(values, return_counts=True)
    after = numpy.cumsum(counts) / len(values)
    before = after - counts / len(values)
    return min(_to_mode_at(mode, x, before, after) for mode in range(len(x)))


def _to_mode_at(mode, x, before, after):
    # Unknown: the distribution up to the mode and from the mode on, which has two values, and the distance
    unit = numpy.eye(len(x) + 1)
    low = [*after[:mode], before[mode], *after[mode:]]
    high = [*before[: mode + 1], after[mode], *before[mode + 1 :]]
    parts = (unit[: mode + 1], x[: mode + 1]), (unit[mode + 1 :], x[mode:])
    left, right = (numpy.diff(part, axis=0) / numpy.diff(at)[:, None] for part, at in parts)
    rising = -numpy.diff(unit, axis=0)
    bent = numpy.concatenate([-numpy.diff(left, axis=0), numpy.diff(right, axis=0)])
    rows = numpy.concatenate([unit, -unit, rising, bent])
    distance = numpy.zeros(len(rows))
    distance[: 2 * len(unit)] = -1
    bounds = [*high, *numpy.negative(low), *numpy.zeros(len(rising) + len(bent))]
    goal = [*numpy.zeros(len(unit)), 1]
    least = numpy.column_stack([rows, distance])
    found = linprog(goal, A_ub=least, b_ub=bounds, bounds=[(0, 1)] * len(goal))
    return found.fun if found.success else 1.0


@pytest.mark.parametrize("kind", ["uniform", "two modes", "ties"])
def test_the_dip_is_the_least_distance_to_a_unimodal_distribution(kind):
    generator = numpy.random.default_rng(7)
    for count in (4, 6, 9, 12, 15, 30):
        values = generator.random(count)
        if kind == "two modes":
            values[: count // 2] += 1.5
        if kind == "ties":
            values = values.round(1)
        assert dip(list(values)) == pytest.approx(_brute_force(values), abs=1e-9)


def test_two_modes_have_a_small_p_and_a_mixture_finds_them_and_one_has_not():
    generator = numpy.random.default_rng(1)
    values = [*generator.normal(1.2, 0.05, 60), *generator.normal(1.9, 0.03, 30)]
    fit = mixture_fit(values)
    assert fit.bimodal
    assert fit.means == pytest.approx((1.2, 1.9), abs=0.03)
    assert fit.shares == pytest.approx((2 / 3, 1 / 3), abs=0.02)
    assert dip_test(values)[1] == pytest.approx(1 / 2001)
    assert dip_test(values[:60])[1] > 0.1


def test_the_gain_is_that_of_the_likelihoods():
    generator = numpy.random.default_rng(1)
    values = numpy.concatenate([generator.normal(0, 1, 30), generator.normal(6, 1, 30)])
    one = norm.logpdf(values, values.mean(), values.std()).sum()
    # Far apart, each component is one half of the values
    halves = [numpy.sort(values)[:30], numpy.sort(values)[30:]]
    densities = [0.5 * norm.pdf(values, half.mean(), half.std()) for half in halves]
    two = numpy.log(sum(densities)).sum()
    expected = 2 * two - 2 * one - 3 * numpy.log(60)
    assert mixture_fit(list(values)).gain == pytest.approx(expected, abs=0.05)


def test_a_skewed_distribution_is_not_bimodal_though_two_gaussians_fit_it_better():
    values = 1 + numpy.random.default_rng(0).gamma(2, 0.08, 200)
    fit = mixture_fit(list(values))
    assert (fit.gain > 0, fit.modes, fit.bimodal) == (True, 1, False)


def test_the_power_is_that_of_the_test():
    generator = numpy.random.default_rng(6)
    found = 0
    for _ in range(200):
        means = numpy.where(generator.random(40) < 0.5, 0.0, 3.0)
        found += dip_test(list(generator.normal(means, 1)))[1] < 0.05
    # Both are known to 0.035 (standard error)
    assert dip_power((0.0, 3.0), 1.0, 40) == pytest.approx(found / 200, abs=0.12)
