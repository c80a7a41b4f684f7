"""The paired t-test against the closed form of Student's distribution."""

import math
import sys

import pytest

from fairseq_entmax.paired_tests import paired_t_test


def test_the_t_test_of_three_sentences_is_its_closed_form():
    first, second = [2.0, 1.0, 4.0], [2.5, 0.5, 7.0]
    differences = [0.5, -0.5, 3.0]
    mean = sum(differences) / 3
    deviation = math.sqrt(sum((d - mean) ** 2 for d in differences) / 2)
    t = mean / (deviation / math.sqrt(3))
    assert paired_t_test(first, second) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-12)
    assert paired_t_test(second, first) == paired_t_test(first, second)


def test_scores_that_do_not_differ_have_a_p_of_one_and_one_sentence_has_none():
    with pytest.raises(ValueError, match="needs 2 sentences or more, not 1"):
        paired_t_test([1.0], [2.0])
    assert paired_t_test([2.0, 1.0, 4.0], [2.0, 1.0, 4.0]) == 1.0


def test_without_scipy_one_sentence_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fairseq-entmax\[analysis\]'"):
        paired_t_test([1.0, 2.0], [1.5, 3.5])
