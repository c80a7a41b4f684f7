"""Intervals and tests, compared with scipy and sacreBLEU."""

import itertools
import math

import numpy
import pytest
from claims.statistics import (
    Draw,
    Stratum,
    bleu,
    chosen_more_often,
    combined_p,
    paired_bootstrap,
    rank_correlation,
    seed_interval,
    superiority,
)
from sacrebleu.metrics import BLEU
from scipy import stats


def systems(error_rates, sentences=150):
    """References, and texts and statistics of systems with these shares of wrong words."""
    generator = numpy.random.default_rng(4)
    lengths = generator.integers(6, 25, sentences)
    lines = [[f"w{i}" for i in generator.integers(0, 200, n)] for n in lengths]
    references = [" ".join(line) for line in lines]
    texts = [
        [" ".join(w if generator.random() > rate else "x" for w in line) for line in lines]
        for rate in error_rates
    ]
    metric = BLEU(references=[references])
    rows = [numpy.array(metric._extract_corpus_statistics(text, None)) for text in texts]
    return references, texts, rows


def test_the_interval_over_seeds_is_students_and_needs_two_seeds():
    values = [23.1, 24.0, 23.7]
    mean, error = numpy.mean(values), stats.sem(values)
    assert seed_interval(values) == pytest.approx(stats.t.interval(0.95, 2, mean, error))
    assert all(map(math.isnan, seed_interval([23.1])))


def test_bleu_of_summed_statistics_matches_sacrebleu_with_smoothing():
    references, texts, rows = systems([0.2, 0.4, 0.9, 1.0])
    for text, own in zip(texts, rows, strict=True):
        expected = BLEU().corpus_score(text, [references]).score
        assert bleu(own.sum(0)) == pytest.approx(expected)
    for sums in (
        [20, 25, 9, 4, 0, 0, 20, 19, 18, 17],
        [2, 2, 2, 1, 0, 0, 2, 1, 0, 0],
        [0, 5, 0, 0, 0, 0, 0, 0, 0, 0],
    ):
        expected = BLEU()._compute_score_from_stats(sums).score
        assert bleu(numpy.array(sums)) == pytest.approx(expected)


def test_the_bootstrap_draws_the_same_sentences_for_all_seeds():
    references, texts, rows = systems([0.30, 0.31, 0.36, 0.37], sentences=60)
    found = paired_bootstrap(rows[:2], rows[2:])
    score = [BLEU().corpus_score(text, [references]).score for text in texts]
    assert found.difference == pytest.approx((score[0] + score[1] - score[2] - score[3]) / 2)
    counts = numpy.random.RandomState(1).multinomial(60, numpy.full(60, 1 / 60), size=1000)
    differences = []
    for drawn in counts:
        places = numpy.repeat(numpy.arange(60), drawn)
        score = [BLEU()._compute_score_from_stats(own[places].sum(0)).score for own in rows]
        differences.append((score[0] + score[1] - score[2] - score[3]) / 2)
    assert (found.low, found.high) == pytest.approx(numpy.quantile(differences, [0.025, 0.975]))
    # p is the share of samples at least as far from their mean, on either side
    far = numpy.abs(differences - numpy.mean(differences)) >= abs(found.difference)
    assert found.p == pytest.approx((1 + far.sum()) / 1001)
    assert paired_bootstrap(rows[:1], rows[:1]).p == 1


def test_p_values_are_combined_by_fishers_method():
    p_values = [0.04, 0.2, 0.1]
    chi2 = -2 * sum(map(math.log, p_values))
    assert combined_p(p_values) == pytest.approx(stats.chi2.sf(chi2, 6))


FIRST = [0.3, 0.1, 0.25, 0.05, 0.12, 0.18]
SECOND = [0.9, 0.2, 0.5, 0.3, 0.1, 0.6]
# 10,000 draws determine a p-value to within 0.015, three standard errors
DRAWN = 0.015


def test_one_stratum_has_spearmans_correlation_and_the_exact_p_value():
    tested = rank_correlation([Stratum(1, FIRST, SECOND)])
    expected = stats.spearmanr(FIRST, SECOND).statistic
    assert tested.values == [pytest.approx(expected)]
    orders = itertools.permutations(SECOND)
    all_orders = numpy.array([stats.spearmanr(FIRST, order).statistic for order in orders])
    assert tested.greater == pytest.approx((all_orders >= expected - 1e-9).mean(), abs=DRAWN)
    assert tested.less == pytest.approx((all_orders <= expected + 1e-9).mean(), abs=DRAWN)


def test_differences_between_strata_do_not_count_and_seeds_are_separate():
    low, high = [0.1, 0.2, 0.3], [10.1, 10.2, 10.3]
    orders = (1, low, [3, 2, 1]), (1, high, [13, 12, 11]), (2, low, [1, 2, 3])
    strata = [Stratum(*one) for one in orders]
    assert rank_correlation(strata).values == pytest.approx([-1.0, 1.0])
    assert rank_correlation([Stratum(1, [1, 2, 3], [5, 5, 5])]) is None


def test_superiority_of_chosen_heads_matches_the_mann_whitney_test():
    chosen = numpy.array([1, 0, 1, 0, 0, 1])
    tested = superiority([Stratum(1, FIRST, chosen)])
    first = numpy.array(FIRST)
    both, how = (first[chosen == 1], first[chosen == 0]), {"method": "exact"}
    reference = stats.mannwhitneyu(*both, alternative="greater", **how)
    assert tested.values == [pytest.approx(reference.statistic / 9)]
    assert tested.greater == pytest.approx(reference.pvalue, abs=DRAWN)


def test_ties_count_half_pairs_weigh_the_same_and_strata_without_pairs_are_skipped():
    assert superiority([Stratum(1, [1, 1, 2, 0], [1, 0, 0, 0])]).values == [pytest.approx(0.5)]
    # One pair that wins, and three that do not
    strata = [Stratum(1, [1, 2], [0, 1]), Stratum(1, [1, 2, 3, 4], [1, 0, 0, 0])]
    assert superiority(strata).values == [pytest.approx(1 / 4)]
    tested = superiority([Stratum(1, [1, 2, 3], [1, 1, 1]), Stratum(1, [1, 2, 3], [0, 0, 1])])
    assert tested.values == [1]
    assert superiority([Stratum(1, [1, 2], [1, 1])]) is None


def test_counts_match_fishers_exact_test_and_are_summed_over_models():
    tested = chosen_more_often([Draw(seed=1, heads=24, marked=8, chosen=10, both=6)])
    table = [[6, 2], [4, 12]]
    assert tested.greater == pytest.approx(stats.fisher_exact(table, alternative="greater").pvalue)
    assert tested.less == pytest.approx(stats.fisher_exact(table, alternative="less").pvalue)
    assert tested.values == [pytest.approx(6 / 8 - 4 / 16)]
    tested = chosen_more_often([Draw(1, 4, 2, 2, 2), Draw(2, 4, 2, 2, 1)])
    # 2 of 4 heads marked and 2 chosen: 0, 1 or 2 of both with probability 1/6, 4/6, 1/6
    one = {0: 1 / 6, 1: 4 / 6, 2: 1 / 6}
    pairs = itertools.product(one.items(), repeat=2)
    assert tested.greater == pytest.approx(sum(p * q for (a, p), (b, q) in pairs if a + b >= 3))
    assert chosen_more_often([Draw(1, 4, 4, 2, 2), Draw(2, 4, 0, 2, 0)]) is None
