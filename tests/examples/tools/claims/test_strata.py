"""Tests over heads within strata, against scipy and enumeration."""

import itertools

import numpy as np
import pytest
from claims.strata import (
    Draw,
    Stratum,
    broken_stick_share,
    chosen_more_often,
    concentration,
    rank_correlation,
    strata_of,
    superiority,
)
from scipy import stats

FIRST = [0.3, 0.1, 0.25, 0.05, 0.12, 0.18]
SECOND = [0.9, 0.2, 0.5, 0.3, 0.1, 0.6]
# 10,000 draws know a p-value to within 0.015, three standard errors
DRAWN = 0.015


def test_one_stratum_has_spearmans_correlation_and_the_p_of_all_orders():
    tested = rank_correlation([Stratum(1, FIRST, SECOND)])
    expected = stats.spearmanr(FIRST, SECOND).statistic
    assert tested.values == [pytest.approx(expected)]
    orders = [stats.spearmanr(FIRST, order).statistic for order in itertools.permutations(SECOND)]
    assert tested.greater == pytest.approx(np.mean(np.array(orders) >= expected - 1e-9), abs=DRAWN)
    assert tested.less == pytest.approx(np.mean(np.array(orders) <= expected + 1e-9), abs=DRAWN)


def test_orders_that_agree_in_every_stratum_are_found_though_one_alone_is_not():
    strata = [Stratum(1, [1, 2, 3, 4], [1, 3, 2, 4])] * 3
    assert rank_correlation(strata[:1]).greater > 0.05
    assert rank_correlation(strata).greater < 0.02


def test_differences_between_strata_are_no_correlation_within():
    low, high = [0.1, 0.2, 0.3], [10.1, 10.2, 10.3]
    tested = rank_correlation([Stratum(1, low, [3, 2, 1]), Stratum(1, high, [13, 12, 11])])
    assert tested.values == [pytest.approx(-1)]


def test_a_stratum_in_which_all_are_alike_says_nothing():
    assert rank_correlation([Stratum(1, [1, 2, 3], [5, 5, 5])]) is None


def test_each_seed_has_a_value_of_its_own():
    strata = [Stratum(1, [1, 2, 3], [1, 2, 3]), Stratum(2, [1, 2, 3], [3, 2, 1])]
    tested = rank_correlation(strata)
    assert tested.by_seed == pytest.approx({1: 1.0, 2: -1.0})


def test_chosen_heads_that_have_more_win_as_mann_and_whitney_count():
    chosen = [1, 0, 1, 0, 0, 1]
    tested = superiority([Stratum(1, FIRST, chosen)])
    ours = [a for a, b in zip(FIRST, chosen, strict=True) if b]
    others = [a for a, b in zip(FIRST, chosen, strict=True) if not b]
    reference = stats.mannwhitneyu(ours, others, alternative="greater", method="exact")
    assert tested.values == [pytest.approx(reference.statistic / 9)]
    assert tested.greater == pytest.approx(reference.pvalue, abs=DRAWN)


def test_ties_count_by_half():
    tested = superiority([Stratum(1, [1, 1, 2, 0], [1, 0, 0, 0])])
    assert tested.values == [pytest.approx(0.5)]


def test_strata_in_which_all_heads_are_kept_are_left_out():
    tested = superiority([Stratum(1, [1, 2, 3], [1, 1, 1]), Stratum(1, [1, 2, 3], [0, 0, 1])])
    assert tested.values == [1]
    assert superiority([Stratum(1, [1, 2], [1, 1])]) is None


def test_the_counts_of_one_model_are_fishers_exact_test():
    tested = chosen_more_often([Draw(seed=1, heads=24, marked=8, chosen=10, both=6)])
    table = [[6, 2], [4, 12]]
    assert tested.greater == pytest.approx(stats.fisher_exact(table, alternative="greater").pvalue)
    assert tested.less == pytest.approx(stats.fisher_exact(table, alternative="less").pvalue)
    assert tested.values == [pytest.approx(6 / 8 - 4 / 16)]


def test_counts_of_several_models_are_added_up_exactly():
    tested = chosen_more_often([Draw(1, 4, 2, 2, 2), Draw(2, 4, 2, 2, 1)])
    # Of 4 heads 2 of each kind, 2 chosen: 0, 1, 2 marked with 1/6, 4/6, 1/6
    one = {0: 1 / 6, 1: 4 / 6, 2: 1 / 6}
    pairs = itertools.product(one.items(), repeat=2)
    assert tested.greater == pytest.approx(sum(p * q for (a, p), (b, q) in pairs if a + b >= 3))


def test_models_whose_heads_are_all_marked_say_nothing_of_marks():
    assert chosen_more_often([Draw(1, 4, 4, 2, 2), Draw(2, 4, 0, 2, 0)]) is None


def test_heads_are_put_into_strata_by_their_group():
    strata = strata_of(7, [("a", 1, 2), ("b", 3, 4), ("a", 5, 6)])
    assert strata == [Stratum(7, [1, 5], [2, 6]), Stratum(7, [3], [4])]


def test_the_largest_parts_of_a_stick_have_what_draws_of_them_have():
    sticks = np.sort(np.random.default_rng(3).dirichlet(np.ones(8), 200_000), axis=1)
    for largest in (1, 2, 3):
        assert broken_stick_share(8, largest) == pytest.approx(
            sticks[:, -largest:].sum(axis=1).mean(), abs=1e-3
        )


def test_one_head_with_nearly_all_is_more_than_a_stick_broken_at_random():
    layers = [(seed, [0.6, 0.3, *[0.1 / 6] * 6]) for seed in (1, 2)]
    tested = concentration(layers)
    assert tested.above_chance == [pytest.approx(0.9 - broken_stick_share(8, 2))] * 2
    assert tested.greater < 0.01


def test_equal_heads_are_less_uneven_than_a_stick_broken_at_random():
    tested = concentration([(1, [0.125] * 8), (2, [0.125] * 8)])
    assert tested.values == [0.25, 0.25]
    assert tested.greater > 0.9
    assert tested.less < 0.05


def test_random_orders_are_of_the_generator_whose_numbers_do_not_change():
    # Of RandomState, the numbers are the same in all releases of numpy
    orders = np.random.RandomState(1).random_sample((10_000, 6)).argsort(axis=1)
    first, second = (stats.rankdata(values) - 3.5 for values in (FIRST, SECOND))
    drawn, observed = second[orders] @ first, second @ first
    expected = (1 + (drawn >= observed - 1e-9).sum()) / 10_001
    tested = rank_correlation([Stratum(1, FIRST, SECOND)])
    # Fisher's method leaves the p of one seed as it is
    assert tested.greater == pytest.approx(expected)
