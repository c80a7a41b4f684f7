"""The paired t-test, compared with the closed form of Student's distribution."""

import math
import sys

import pytest

from fairseq_entmax.paired_tests import paired_t_test


def test_the_p_value_for_three_sentences_matches_the_closed_form():
    first, second = [2.0, 1.0, 4.0], [2.5, 0.5, 7.0]
    differences = [0.5, -0.5, 3.0]
    mean = sum(differences) / 3
    deviation = math.sqrt(sum((d - mean) ** 2 for d in differences) / 2)
    t = mean / (deviation / math.sqrt(3))
    assert paired_t_test(first, second) == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-12)
    assert paired_t_test(second, first) == paired_t_test(first, second)


def test_equal_scores_have_p_1_and_one_sentence_is_refused():
    with pytest.raises(ValueError, match="needs at least 2 sentences, not 1"):
        paired_t_test([1.0], [2.0])
    assert paired_t_test([2.0, 1.0, 4.0], [2.0, 1.0, 4.0]) == 1.0


def test_without_scipy_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'fairseq-entmax\[analysis\]'"):
        paired_t_test([1.0, 2.0], [1.5, 3.5])
