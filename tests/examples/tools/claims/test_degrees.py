"""Differences across settings, pooled with the variance within settings."""

import math

import numpy
import pytest
from claims.degrees import pooled_interval
from claims.statistics import seed_interval
from scipy import stats


def test_one_setting_has_the_interval_over_its_seeds():
    values = numpy.array([0.3, 0.5, 0.1])
    assert pooled_interval([values]) == pytest.approx((0.3, *seed_interval(values)))


def test_differences_between_settings_do_not_widen_the_interval():
    groups = [numpy.array([0.1, 0.2, 0.3]), numpy.array([1.1, 1.3, 1.2, 1.6])]
    found = pooled_interval(groups)
    # The variance within two groups, from the statistic of a t-test between them
    t = stats.ttest_ind(*groups).statistic
    deviation = abs((groups[0].mean() - groups[1].mean()) / t) / math.sqrt(1 / 3 + 1 / 4)
    reach = stats.t.ppf(0.975, 5) * deviation / math.sqrt(7)
    mean = numpy.concatenate(groups).mean()
    assert found == pytest.approx((mean, mean - reach, mean + reach))


def test_one_seed_per_setting_has_no_interval():
    mean, low, high = pooled_interval([numpy.array([1.0]), numpy.array([2.0])])
    assert mean == 1.5
    assert math.isnan(low)
    assert math.isnan(high)
