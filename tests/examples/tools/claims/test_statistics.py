"""Intervals and tests, against scipy and sacreBLEU."""

from __future__ import annotations

import math

import numpy
import pytest
from claims.statistics import (
    binomial,
    bleu,
    combined_p,
    fisher_exact,
    mann_whitney,
    paired_bootstrap,
    seed_interval,
    spearman,
)
from sacrebleu.metrics import BLEU
from scipy import stats

from tests.examples.tools.claims import synthetic

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
    found = paired_bootstrap(
        [_statistics(references, one)], [_statistics(references, other)], samples=2000
    )
    scores = [BLEU().corpus_score(system, [references]).score for system in (one, other)]
    assert found.difference == pytest.approx(scores[0] - scores[1])
    # Differences of sums over many sentences are about Gaussian
    error = (found.high - found.low) / (2 * stats.norm.ppf(0.975))
    expected = 2 * stats.norm.sf(abs(found.difference) / error)
    assert found.p == pytest.approx(expected, abs=0.04)


def test_p_is_the_share_of_samples_as_far_from_their_mean_on_either_side():
    references, (one, other) = _texts([0.30, 0.32], sentences=60)
    rows = [_statistics(references, system) for system in (one, other)]
    found = paired_bootstrap([rows[0]], [rows[1]], samples=300, seed=5)
    counts = numpy.random.RandomState(5).multinomial(60, numpy.full(60, 1 / 60), size=300)
    drawn = bleu(counts @ rows[0]) - bleu(counts @ rows[1])
    beyond = sum(abs(value - drawn.mean()) >= abs(found.difference) for value in drawn)
    assert found.p == pytest.approx((1 + beyond) / 301)


def test_models_that_are_alike_are_told_apart_as_often_as_the_level_says():
    generator = numpy.random.default_rng(8)
    lengths = generator.integers(8, 30, 80)
    totals = numpy.maximum(lengths[:, None] - numpy.arange(4), 0)

    def system():
        correct = generator.binomial(totals, [0.6, 0.4, 0.25, 0.15])
        return numpy.concatenate([lengths[:, None], lengths[:, None], correct, totals], axis=1)

    p_values = [paired_bootstrap([system()], [system()], samples=200).p for _ in range(600)]
    # 30 are expected, with a standard deviation of five; sacreBLEU's p gives about 60
    assert 15 <= sum(p < 0.05 for p in p_values) <= 45


def test_the_bootstrap_draws_the_same_sentences_for_all_seeds_and_averages():
    references, systems = _texts([0.30, 0.31, 0.36, 0.37], sentences=60)
    one, two, three, four = (_statistics(references, system) for system in systems)
    found = paired_bootstrap([one, two], [three, four], samples=300, seed=5)
    counts = numpy.random.RandomState(5).multinomial(60, numpy.full(60, 1 / 60), size=300)
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


def test_models_that_cannot_be_paired_are_refused():
    rows = numpy.ones((5, 10), dtype=int)
    with pytest.raises(ValueError, match="as many models on both sides"):
        paired_bootstrap([rows, rows], [rows])
    with pytest.raises(ValueError, match="with the same sentences"):
        paired_bootstrap([rows], [rows[:4]])


def test_the_made_up_runs_have_the_bleu_that_their_sentences_say():
    for document in synthetic.documents(seeds=(1,))[:3]:
        rows = numpy.array(document["translation"]["sentences"])
        expected = BLEU()._compute_score_from_stats(rows.sum(0).tolist()).score
        assert document["translation"]["bleu"] == pytest.approx(expected, abs=0.006)


def test_p_values_of_seeds_are_combined_by_fishers_method():
    p_values = [0.04, 0.2, 0.1]
    chi2 = -2 * sum(map(math.log, p_values))
    assert combined_p(p_values) == pytest.approx(stats.chi2.sf(chi2, 6))


def test_a_rank_correlation_of_few_values_goes_through_all_orders():
    rho, p = spearman([1, 2, 3, 4], [10, 20, 30, 40])
    assert rho == pytest.approx(1)
    assert p == pytest.approx(1 / 24)


def test_a_rank_correlation_of_many_values_is_scipys():
    generator = numpy.random.default_rng(1)
    one = generator.random(24)
    other = one + generator.random(24)
    expected = stats.spearmanr(one, other, alternative="greater")
    assert spearman(list(one), list(other)) == pytest.approx(tuple(expected))


def test_values_that_are_all_the_same_have_no_rank_correlation():
    assert spearman([1, 1, 1, 1], [1, 2, 3, 4]) == (0, 1)


def test_few_values_are_compared_exactly():
    # Of the 20 ways to choose three of six, one has the three highest
    assert mann_whitney([4, 5, 6], [1, 2, 3]) == pytest.approx(1 / 20)
    assert mann_whitney([], [1, 2]) == 1


def test_counts_are_compared_exactly():
    # The only table as extreme, of the 6 choose 3 with these margins
    assert fisher_exact([[3, 0], [0, 3]]) == pytest.approx(1 / 20)
    assert binomial(3, 3, 0.5) == pytest.approx(1 / 8)
    assert binomial(0, 0, 0.5) == 1
