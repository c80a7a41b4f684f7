"""Intervals and tests, against scipy and sacreBLEU."""

from __future__ import annotations

import itertools
import math

import numpy
import pytest
from claims.statistics import (
    Draw,
    Stratum,
    bleu,
    broken_stick_share,
    chosen_more_often,
    combined_p,
    concentration,
    holm,
    paired_bootstrap,
    rank_correlation,
    seed_interval,
    superiority,
)
from sacrebleu.metrics import BLEU
from scipy import stats

WORDS = [f"w{number}" for number in range(200)]


def _texts(error_rates, sentences=150):
    """References, and hypotheses of systems in which this share of the words is another."""
    generator = numpy.random.default_rng(4)
    lengths = generator.integers(6, 25, sentences)
    references = [[WORDS[i] for i in generator.integers(0, 200, n)] for n in lengths]
    systems = [
        [[w if generator.random() > rate else "x" for w in line] for line in references]
        for rate in error_rates
    ]
    return [" ".join(line) for line in references], [
        [" ".join(line) for line in system] for system in systems
    ]


def _statistics(references, system):
    metric = BLEU(references=[references])
    return numpy.array(metric._extract_corpus_statistics(system, None))


def test_the_interval_over_seeds_is_students():
    values = [23.1, 24.0, 23.7]
    mean, error = numpy.mean(values), stats.sem(values)
    assert seed_interval(values) == pytest.approx(stats.t.interval(0.95, 2, mean, error))


def test_one_seed_has_no_interval():
    assert all(map(math.isnan, seed_interval([23.1])))


def test_bleu_of_sums_is_that_of_sacrebleu():
    references, systems = _texts([0.2, 0.4, 0.9, 1.0])
    for system in systems:
        expected = BLEU().corpus_score(system, [references]).score
        assert bleu(_statistics(references, system).sum(0)) == pytest.approx(expected)


@pytest.mark.parametrize(
    "sums",
    [
        [20, 25, 9, 4, 0, 0, 20, 19, 18, 17],
        [20, 15, 9, 4, 2, 0, 20, 19, 18, 17],
        [2, 2, 2, 1, 0, 0, 2, 1, 0, 0],
        [0, 5, 0, 0, 0, 0, 0, 0, 0, 0],
    ],
)
def test_bleu_without_matches_is_smoothed_as_sacrebleu_does(sums):
    expected = BLEU()._compute_score_from_stats(sums).score
    assert bleu(numpy.array(sums)) == pytest.approx(expected)


@pytest.mark.parametrize(("first", "second"), [(0.30, 0.36), (0.30, 0.305), (0.30, 0.32)])
def test_the_bootstrap_has_the_difference_of_sacrebleu_and_about_the_p_of_a_gaussian(first, second):
    references, (one, other) = _texts([first, second])
    found = paired_bootstrap([_statistics(references, one)], [_statistics(references, other)])
    scores = [BLEU().corpus_score(system, [references]).score for system in (one, other)]
    assert found.difference == pytest.approx(scores[0] - scores[1])
    # Differences of sums over many sentences are about Gaussian
    error = (found.high - found.low) / (2 * stats.norm.ppf(0.975))
    expected = 2 * stats.norm.sf(abs(found.difference) / error)
    assert found.p == pytest.approx(expected, abs=0.04)


def test_p_is_the_share_of_samples_as_far_from_their_mean_on_either_side():
    references, (one, other) = _texts([0.30, 0.32], sentences=60)
    rows = [_statistics(references, system) for system in (one, other)]
    found = paired_bootstrap([rows[0]], [rows[1]])
    counts = numpy.random.RandomState(1).multinomial(60, numpy.full(60, 1 / 60), size=1000)
    drawn = bleu(counts @ rows[0]) - bleu(counts @ rows[1])
    beyond = sum(abs(value - drawn.mean()) >= abs(found.difference) for value in drawn)
    assert found.p == pytest.approx((1 + beyond) / 1001)


def test_the_bootstrap_draws_the_same_sentences_for_all_seeds_and_averages():
    references, systems = _texts([0.30, 0.31, 0.36, 0.37], sentences=60)
    one, two, three, four = (_statistics(references, system) for system in systems)
    found = paired_bootstrap([one, two], [three, four])
    counts = numpy.random.RandomState(1).multinomial(60, numpy.full(60, 1 / 60), size=1000)
    differences = []
    for drawn in counts:
        rows = numpy.repeat(numpy.arange(60), drawn)
        score = [
            BLEU()._compute_score_from_stats(s[rows].sum(0)).score for s in (one, two, three, four)
        ]
        differences.append((score[0] + score[1] - score[2] - score[3]) / 2)
    assert (found.low, found.high) == pytest.approx(numpy.quantile(differences, [0.025, 0.975]))


def test_models_with_the_same_bleu_do_not_differ():
    references, (one,) = _texts([0.3])
    rows = _statistics(references, one)
    assert paired_bootstrap([rows], [rows]).p == 1


def test_p_values_of_seeds_are_combined_by_fishers_method():
    p_values = [0.04, 0.2, 0.1]
    chi2 = -2 * sum(map(math.log, p_values))
    assert combined_p(p_values) == pytest.approx(stats.chi2.sf(chi2, 6))


def test_holm_corrects_as_by_hand():
    # 0.01 is one of three, 0.02 of two, and 0.03 alone, but no lower than the one before
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.6, 0.7]) == [1, 1]


# --- heads within strata ------------------------------------------------------

FIRST = [0.3, 0.1, 0.25, 0.05, 0.12, 0.18]
SECOND = [0.9, 0.2, 0.5, 0.3, 0.1, 0.6]
# 10,000 draws know a p-value to within 0.015, three standard errors
DRAWN = 0.015


def test_one_stratum_has_spearmans_correlation_and_the_p_of_all_orders():
    tested = rank_correlation([Stratum(1, FIRST, SECOND)])
    expected = stats.spearmanr(FIRST, SECOND).statistic
    assert tested.values == [pytest.approx(expected)]
    orders = [stats.spearmanr(FIRST, order).statistic for order in itertools.permutations(SECOND)]
    assert tested.greater == pytest.approx(
        numpy.mean(numpy.array(orders) >= expected - 1e-9), abs=DRAWN
    )
    assert tested.less == pytest.approx(
        numpy.mean(numpy.array(orders) <= expected + 1e-9), abs=DRAWN
    )


def test_random_orders_are_of_the_generator_whose_numbers_do_not_change():
    orders = numpy.random.RandomState(1).random_sample((10_000, 6)).argsort(axis=1)
    first, second = (stats.rankdata(values) - 3.5 for values in (FIRST, SECOND))
    drawn, observed = second[orders] @ first, second @ first
    expected = (1 + (drawn >= observed - 1e-9).sum()) / 10_001
    # Fisher's method leaves the p of one seed as it is
    assert rank_correlation([Stratum(1, FIRST, SECOND)]).greater == pytest.approx(expected)


def test_differences_between_strata_are_no_correlation_within_and_seeds_stand_apart():
    low, high = [0.1, 0.2, 0.3], [10.1, 10.2, 10.3]
    strata = [
        Stratum(1, low, [3, 2, 1]),
        Stratum(1, high, [13, 12, 11]),
        Stratum(2, low, [1, 2, 3]),
    ]
    assert rank_correlation(strata).by_seed == pytest.approx({1: -1.0, 2: 1.0})
    assert rank_correlation([Stratum(1, [1, 2, 3], [5, 5, 5])]) is None


def test_chosen_heads_that_have_more_win_as_mann_and_whitney_count():
    chosen = [1, 0, 1, 0, 0, 1]
    tested = superiority([Stratum(1, FIRST, chosen)])
    ours = [a for a, b in zip(FIRST, chosen, strict=True) if b]
    others = [a for a, b in zip(FIRST, chosen, strict=True) if not b]
    reference = stats.mannwhitneyu(ours, others, alternative="greater", method="exact")
    assert tested.values == [pytest.approx(reference.statistic / 9)]
    assert tested.greater == pytest.approx(reference.pvalue, abs=DRAWN)


def test_ties_count_by_half_and_strata_in_which_all_heads_are_kept_are_left_out():
    assert superiority([Stratum(1, [1, 1, 2, 0], [1, 0, 0, 0])]).values == [pytest.approx(0.5)]
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
    assert chosen_more_often([Draw(1, 4, 4, 2, 2), Draw(2, 4, 0, 2, 0)]) is None


def test_the_largest_quarter_of_a_stick_has_what_draws_of_it_have():
    for parts, largest in ((4, 1), (8, 2), (12, 3)):
        sticks = numpy.random.default_rng(3).dirichlet(numpy.ones(parts), 200_000)
        expected = numpy.sort(sticks, axis=1)[:, -largest:].sum(axis=1).mean()
        assert broken_stick_share(parts) == pytest.approx(expected, abs=1e-3)


def test_heads_are_more_or_less_uneven_than_a_stick_broken_at_random():
    def strata(shares):
        return [Stratum(seed, shares, shares) for seed in (1, 2)]

    uneven = concentration(strata([0.6, 0.3, *[0.1 / 6] * 6]))
    assert uneven.values == [pytest.approx(0.9)] * 2
    assert uneven.greater < 0.01
    even = concentration(strata([0.125] * 8))
    assert even.values == [0.25, 0.25]
    assert even.less < 0.05 < 0.9 < even.greater
