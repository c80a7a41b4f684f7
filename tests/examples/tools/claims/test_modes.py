"""Two modes are found in a mixture of two, and the fit recovers the mixture."""

import numpy
import pytest
from claims.modes import dip_power, dip_test, mixture_fit
from scipy.stats import norm


def test_two_modes_have_a_small_p_and_their_mixture_is_recovered():
    generator = numpy.random.default_rng(1)
    values = [*generator.normal(1.2, 0.05, 60), *generator.normal(1.9, 0.03, 30)]
    fit = mixture_fit(values)
    assert fit.bimodal
    assert fit.means == pytest.approx((1.2, 1.9), abs=0.03)
    assert fit.shares == pytest.approx((2 / 3, 1 / 3), abs=0.02)
    assert dip_test(values)[1] == pytest.approx(1 / 2001)
    assert dip_test(values[:60])[1] > 0.1


def test_the_gain_matches_the_likelihoods():
    generator = numpy.random.default_rng(1)
    values = numpy.concatenate([generator.normal(0, 1, 30), generator.normal(6, 1, 30)])
    one = norm.logpdf(values, values.mean(), values.std()).sum()
    # The components are so far apart that each is one half of the values
    halves = [numpy.sort(values)[:30], numpy.sort(values)[30:]]
    densities = [0.5 * norm.pdf(values, half.mean(), half.std()) for half in halves]
    two = numpy.log(sum(densities)).sum()
    expected = 2 * two - 2 * one - 3 * numpy.log(60)
    assert mixture_fit(list(values)).gain == pytest.approx(expected, abs=0.05)


def test_a_skewed_distribution_is_not_bimodal_even_if_two_gaussians_fit_better():
    values = 1 + numpy.random.default_rng(0).gamma(2, 0.08, 200)
    fit = mixture_fit(list(values))
    assert (fit.gain > 0, fit.modes, fit.bimodal) == (True, 1, False)


def test_the_power_matches_that_of_the_test():
    generator = numpy.random.default_rng(6)
    found = 0
    for _ in range(200):
        means = numpy.where(generator.random(40) < 0.5, 0.0, 3.0)
        found += dip_test(list(generator.normal(means, 1)))[1] < 0.05
    # The standard error of both is 0.035
    assert dip_power((0.0, 3.0), 1.0, 40) == pytest.approx(found / 200, abs=0.12)
