"""Whether relevance, gradient and confidence predict what a model loses without a head."""

import math
import random

import numpy as np
import pytest

from fairseq_entmax.analysis.report.ablation_table import joined
from fairseq_entmax.analysis.report.agreement import (
    ALL,
    WITHIN,
    correlations,
    interval,
)
from fairseq_entmax.analysis.report.payload import page_data
from fairseq_entmax.head_names import Head
from tests.analysis.report.synthetic import every_head, heads_of


def ablated(analysis, change, model=0, score="loss", most=99):
    """Add ``change(head)`` of the first ``most`` heads to the analysis; one head's is significant."""
    entry, chosen = analysis["models"][model], {}
    for layer in entry["attentions"]:
        for one in layer["heads"][: most - len(chosen)]:
            head = Head(layer["attention"], layer["layer"], one["head"])
            chosen[head] = {score: change(one)}, [score] * (head == Head("cross", 1, 2))
    return joined(analysis, {entry["name"]: chosen})


def found(analysis):
    return {(one.measure, one.heads): one for one in correlations(analysis)}


def test_the_correlation_is_spearmans_over_all_heads_by_attention_and_within_layers(small):
    of = found(ablated(small, lambda head: head["confidence"] ** 3 - 2))
    for heads, number in ((ALL, 18), ("cross", 6), (WITHIN, 18)):
        assert of["confidence", heads].value == pytest.approx(1)
        assert of["confidence", heads].number == number
    chance, changes = random.Random(0), {}
    one = ablated(small, lambda head: changes.setdefault(id(head), chance.random()))

    def expected(heads):
        sides = [[head["gradient"] for head in heads], [changes[id(head)] for head in heads]]
        return np.corrcoef([np.argsort(np.argsort(side)) for side in sides])[0, 1]

    of, model = found(one), small["models"][0]
    assert of["gradient", ALL].value == pytest.approx(expected(heads_of(model)))
    layers = [expected(layer["heads"]) for layer in model["attentions"]]
    assert of["gradient", WITHIN].value == pytest.approx(np.mean(layers))


def test_a_loss_rises_and_other_scores_fall_where_a_head_mattered(small):
    for score, sign in (("loss", 1), ("bleu", -1), ("my_score", -1)):
        one = ablated(small, lambda head, sign=sign: sign * head["relevance"], score=score)
        assert found(one)["relevance", ALL].value == pytest.approx(1)


def test_missing_measures_and_too_few_heads_have_no_correlation(small):
    for head in every_head(small):
        head["relevance"] = None
    one = ablated(small, lambda head: head["gradient"], most=5)
    assert set(found(one)) == {("gradient", ALL), ("confidence", ALL)}
    assert found(one)["gradient", ALL].number == 5
    assert found(ablated(small, lambda head: head["gradient"], most=2)) == {}


def test_the_interval_contains_the_true_correlation_in_about_95_percent():
    generator = np.random.default_rng(0)
    true, number, held = 0.9, 24, 0
    # Spearman's correlation of two normal variables with this Pearson correlation
    rho = 6 / math.pi * math.asin(true / 2)
    for _ in range(2000):
        pairs = generator.multivariate_normal([0, 0], [[1, true], [true, 1]], number)
        ranks = pairs.argsort(axis=0).argsort(axis=0)
        low, high = interval(float(np.corrcoef(ranks.T)[0, 1]), number)
        held += low <= rho <= high
    assert 0.93 <= held / 2000 <= 0.97


@pytest.mark.parametrize("value", [-1.0, 1.0])
def test_few_heads_have_no_interval_and_a_perfect_order_is_not_certain(value):
    assert interval(value, 4) == (None, None)
    low, high = interval(value, 5)
    # Around the next lower correlation, 0.9: tanh(atanh(0.9) - 1.96 sqrt((1 + 1 / 2) / 2))
    assert sorted((value * low, value * high)) == pytest.approx([-0.2214, 1], abs=1e-4)


def test_the_page_has_the_loss_without_each_head_among_its_measures(small):
    assert page_data(small, [], {})["agreement"] == []
    data = page_data(ablated(small, lambda head: head["head"] / 8, model=1), [], {})
    (measure,) = [own for own in data["measures"] if own["name"] == "ablation-loss"]
    assert (measure["title"], measure["isMain"]) == ("Δ loss without it", True)
    assert {own["model"] for own in data["agreement"]} == {"entmax15"}
