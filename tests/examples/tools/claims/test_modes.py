"""The dip test against linear programmes and published quantiles; mixtures against what was mixed."""

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
    # Unknown: the distribution up to the mode, from the mode on, and the distance
    size = len(x) + 2
    rows, bounds = [], []

    def at_most(bound, **terms):
        row = numpy.zeros(size)
        for name, factor in terms.items():
            row[int(name[1:])] += factor
        rows.append(row)
        bounds.append(bound)

    def near(place, low, high):
        at_most(high, **{f"v{place}": 1, f"v{size - 1}": -1})
        at_most(-low, **{f"v{place}": -1, f"v{size - 1}": -1})

    place = [*range(mode + 1)], [*range(mode + 1, len(x) + 1)]
    for i in range(mode):
        near(place[0][i], after[i], before[i])
    near(mode, before[mode], before[mode])
    near(mode + 1, after[mode], after[mode])
    for i in range(mode + 1, len(x)):
        near(i + 1, after[i], before[i])
    for i in range(len(x)):
        at_most(0, **{f"v{i}": 1, f"v{i + 1}": -1})
    points = [*x[: mode + 1], *x[mode:]]
    for part, sign in zip(place, (1, -1), strict=True):
        for left, middle, right in zip(part, part[1:], part[2:], strict=False):
            one, two = points[middle] - points[left], points[right] - points[middle]
            slopes = {f"v{left}": -1 / one, f"v{middle}": 1 / one + 1 / two, f"v{right}": -1 / two}
            at_most(0, **{name: sign * factor for name, factor in slopes.items()})
    goal = numpy.zeros(size)
    goal[-1] = 1
    found = linprog(goal, A_ub=numpy.array(rows), b_ub=bounds, bounds=[(0, 1)] * size)
    return found.fun if found.success else 1.0


@pytest.mark.parametrize("kind", ["uniform", "two modes", "ties"])
def test_the_dip_is_the_least_distance_to_a_unimodal_distribution(kind):
    generator = numpy.random.default_rng(7)
    for count in (4, 6, 9, 12, 15):
        values = generator.random(count)
        if kind == "two modes":
            values[: count // 2] += 1.5
        if kind == "ties":
            values = values.round(1)
        assert dip(list(values)) == pytest.approx(_brute_force(values), abs=1e-9)


def test_two_values_of_equal_share_have_the_largest_dip():
    assert dip([0.0] * 5 + [1.0] * 5) == pytest.approx(0.25)


def test_an_even_distribution_has_the_least_dip():
    assert dip(list(range(20))) == pytest.approx(1 / 40)


def test_many_equal_values_at_the_mode_are_unimodal():
    assert dip([0.0, *[5.0] * 6, 10.0]) == pytest.approx(1 / 16)


# Hartigan and Hartigan 1985, table 1, with the digits of its later recomputation in R's diptest
@pytest.mark.parametrize(
    ("count", "median", "of_95_percent"),
    [(10, 0.0978, 0.1396), (20, 0.0733, 0.1051), (50, 0.0489, 0.0703), (100, 0.0355, 0.0511)],
)
def test_dips_of_uniform_samples_have_the_published_quantiles(count, median, of_95_percent):
    generator = numpy.random.default_rng(3)
    dips = [dip(list(generator.random(count))) for _ in range(1000)]
    # Standard errors of quantiles of 1,000 samples are 1 to 2 %
    assert numpy.quantile(dips, 0.5) == pytest.approx(median, rel=0.03)
    assert numpy.quantile(dips, 0.95) == pytest.approx(of_95_percent, rel=0.06)


def test_two_modes_have_a_small_p_and_one_has_not():
    generator = numpy.random.default_rng(2)
    one = generator.normal(1.3, 0.06, 48)
    two = numpy.concatenate([one[:24], generator.normal(1.9, 0.05, 24)])
    assert dip_test(list(two))[1] == pytest.approx(1 / 2001)
    assert dip_test(list(one))[1] > 0.1


def test_a_mixture_finds_what_was_mixed():
    generator = numpy.random.default_rng(1)
    values = [*generator.normal(1.2, 0.05, 60), *generator.normal(1.9, 0.03, 30)]
    fit = mixture_fit(values)
    assert fit.bimodal
    assert fit.means == pytest.approx((1.2, 1.9), abs=0.03)
    assert fit.shares == pytest.approx((2 / 3, 1 / 3), abs=0.02)


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
    assert fit.gain > 0
    assert fit.modes == 1
    assert not fit.bimodal


def test_modes_that_are_far_apart_are_found_and_modes_that_merge_are_not():
    assert dip_power((1.25, 1.9), 0.06, 72) == 1
    assert dip_power((1.25, 1.9), 0.3, 72) < 0.3


def test_the_power_is_that_of_the_test():
    generator = numpy.random.default_rng(6)
    found = 0
    for _ in range(200):
        means = numpy.where(generator.random(40) < 0.5, 0.0, 3.0)
        found += dip_test(list(generator.normal(means, 1)))[1] < 0.05
    # Both are known to 0.035 (standard error)
    assert dip_power((0.0, 3.0), 1.0, 40) == pytest.approx(found / 200, abs=0.12)
