"""Rules that the judges of the papers share, at their edges."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from claims.judging import (
    Compared,
    as_correlation,
    as_share,
    loses_at_most,
    over_heads,
    p_of_sides,
    role_exists,
)
from claims.statistics import Bootstrap
from claims.strata import HeadStatistic
from claims.verdicts import FAILS, HOLDS, UNDECIDED


def compared(differences, low, high):
    pairs = [(SimpleNamespace(bleu=one), SimpleNamespace(bleu=0.0)) for one in differences]
    return Compared(pairs, Bootstrap(0.0, low, high, 0.5))


@pytest.mark.parametrize(
    ("differences", "low", "high", "expected"),
    [
        ([-0.1, -0.1, -0.1], -0.5, 0.5, HOLDS),
        ([-0.1, -0.1, -0.1], -0.51, 0.5, UNDECIDED),
        ([-0.5, -0.5, -0.5], -0.5, 0.5, HOLDS),
        ([0.9, 0.9, 0.9], 0.5, 1.5, HOLDS),
        ([-0.1, -0.9, -0.5], -0.4, 0.4, UNDECIDED),
        ([-0.6, -0.61, -0.6], -0.8, -0.51, FAILS),
        ([-0.6, -0.61, -0.6], -0.8, -0.4, UNDECIDED),
        ([-0.6, -0.2, -0.5], -0.8, -0.51, UNDECIDED),
    ],
)
def test_a_loss_is_at_most_so_much_where_both_intervals_are(differences, low, high, expected):
    assert loses_at_most(compared(differences, low, high), 0.5).verdict == expected


def test_one_seed_says_nothing_of_a_loss():
    assert loses_at_most(compared([0.0], -0.1, 0.1), 0.5).verdict == UNDECIDED


def of_seeds(values, greater=0.5, less=0.5, chance=0.5):
    return HeadStatistic(dict(enumerate(values)), chance, greater, less)


@pytest.mark.parametrize(
    ("statistic", "expected"),
    [
        (of_seeds([0.7, 0.9, 0.8], greater=0.049), HOLDS),
        (of_seeds([0.7, 0.9, 0.8], greater=0.05), UNDECIDED),
        (of_seeds([0.99, 0.9, 0.5], greater=0.001), UNDECIDED),
        (of_seeds([0.3, 0.1, 0.2], less=0.049), FAILS),
        (of_seeds([0.3, 0.1, 0.5], less=0.001), UNDECIDED),
        (of_seeds([0.51, 0.5, 0.49]), FAILS),
        (of_seeds([0.61, 0.61, 0.61]), UNDECIDED),
        (of_seeds([0.9], greater=0.001), UNDECIDED),
        (of_seeds([0.1], less=0.001), UNDECIDED),
    ],
)
def test_heads_have_more_where_chance_and_all_seeds_say_so(statistic, expected):
    assert over_heads(statistic, margin=0.1).verdict == expected


def test_without_a_margin_nothing_is_of_no_importance():
    assert over_heads(of_seeds([0.5, 0.5, 0.5])).verdict == UNDECIDED


def test_corrected_p_values_stand_for_those_of_the_statistic():
    statistic = of_seeds([0.7, 0.9, 0.8], greater=0.03)
    assert over_heads(statistic, 0.1, (0.06, 1.0)).verdict == UNDECIDED


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({1: 2, 2: 1, 3: 1}, HOLDS),
        ({1: 2, 2: 0, 3: 1}, UNDECIDED),
        ({1: 0, 2: 0, 3: 0}, FAILS),
        ({1: 2}, UNDECIDED),
        ({1: 0}, UNDECIDED),
        ({1: 0, 2: 0}, FAILS),
    ],
)
def test_a_role_exists_where_each_seed_has_it(counts, expected):
    assert role_exists(counts, "that one: 40 %").verdict == expected


def test_where_no_head_has_a_role_the_nearest_is_named():
    assert "that one: 40 %" in role_exists({1: 0}, "that one: 40 %").why


def test_the_interval_of_a_share_ends_at_zero_and_one():
    assert as_share([1.0, 0.9, 0.8]) == "0.90 [0.65, 1.00] (1.00, 0.90, 0.80)"
    assert as_share([0.0, 0.1]) == "0.05 [0.00, 0.69] (0.00, 0.10)"


def test_the_interval_of_a_correlation_ends_at_minus_one_and_one():
    assert as_correlation([-0.9, 0.9]) == "0.00 [−1.00, +1.00] (−0.90, +0.90)"


def test_p_of_the_other_side_is_given_where_it_is_the_one_that_decides():
    assert p_of_sides(of_seeds([0.7, 0.9], greater=0.03, less=0.98)) == "p = 0.030"
    below = of_seeds([0.1, 0.2], greater=0.99, less=0.002)
    assert p_of_sides(below) == "p = 0.990; of the other side p = 0.002"
    assert p_of_sides(below, corrected=1.0) == "p = 1.000; of the other side p = 0.002"
