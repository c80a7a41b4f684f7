"""Intervals of the bootstrap against their normal limit, and resamples drawn one by one."""

import math

import numpy as np
import pytest

from fairseq_entmax.summaries import bootstrap
from fairseq_entmax.summaries.bootstrap import differences, intervals

RANDOM = np.random.default_rng(0)
SCORES = RANDOM.normal(40, 10, size=(400, 2))


def test_the_interval_of_many_documents_is_the_normal_one():
    for place, interval in enumerate(intervals(SCORES, 20_000, seed=1)):
        column = SCORES[:, place]
        half = 1.96 * column.std() / math.sqrt(len(column))
        assert interval.value == pytest.approx(column.mean(), rel=1e-12)
        assert interval.low == pytest.approx(column.mean() - half, abs=0.05 * half)
        assert interval.high == pytest.approx(column.mean() + half, abs=0.05 * half)


def test_resamples_are_means_of_documents_drawn_with_replacement():
    """Of two documents 0 and 1, means are 0, 1/2 and 1, half of them 1/2."""
    scores = np.array([[0.0], [1.0]])
    means = np.concatenate(list(bootstrap._resampled_means(scores, 40_000, seed=3)))[:, 0]
    values, numbers = np.unique(means, return_counts=True)
    assert values.tolist() == [0.0, 0.5, 1.0]
    assert numbers / len(means) == pytest.approx([0.25, 0.5, 0.25], abs=0.01)


def test_resamples_do_not_depend_on_how_many_are_drawn_at_once(monkeypatch):
    whole = intervals(SCORES, 50, seed=2)
    monkeypatch.setattr(bootstrap, "_AT_ONCE", 3 * len(SCORES))
    assert intervals(SCORES, 50, seed=2) == whole


def test_the_seed_decides():
    first, again, other = (intervals(SCORES, 100, seed) for seed in (1, 1, 2))
    assert first == again != other


def test_a_difference_as_large_as_its_error_has_the_p_of_the_normal_distribution():
    noise = RANDOM.normal(0, 1, size=(500, 1))
    noise -= noise.mean()
    for errors in (0.5, 1.0, 2.0):
        change = errors * noise.std() / math.sqrt(len(noise))
        (found,) = differences(np.zeros_like(noise), noise + change, 20_000, seed=1)
        assert found.change.value == pytest.approx(change, rel=1e-9)
        assert found.p == pytest.approx(math.erfc(errors / math.sqrt(2)), abs=0.02)


def test_p_is_one_where_nothing_differs_and_never_zero():
    same, far = differences(SCORES, SCORES + np.array([0, 5]), 99, seed=1)
    assert same.p == 1.0
    assert far.p == 0.01
    assert (same.change.value, far.change.value) == (0.0, pytest.approx(5.0))
