"""Whether relevance, gradient and confidence say what a model loses without a head."""

import math
import random

import numpy as np
import pytest

from fairseq_entmax.analysis.report.ablation_table import Ablation
from fairseq_entmax.analysis.report.agreement import (
    ALL,
    WITHIN,
    Correlation,
    correlations,
    in_words,
    interval,
)
from fairseq_entmax.analysis.report.payload import page_data
from fairseq_entmax.head_names import Head
from tests.analysis.report.synthetic import synthetic_analysis


@pytest.fixture
def analysis():
    return synthetic_analysis(models=2, layers=2, heads=4, sentences=1, length=5)


def ablation(analysis, change, model=0, score="loss"):
    """What a model loses without each head: a function of the head."""
    removed = {
        Head(layer["attention"], layer["layer"], head["head"]): {
            "change": change(head),
            "p": 0.5,
            "p_holm": 1.0,
        }
        for layer in analysis["models"][model]["attentions"]
        for head in layer["heads"]
    }
    return Ablation(analysis["models"][model]["name"], {score: removed})


def found(analysis, *ablations):
    return {(one.measure, one.heads): one for one in correlations(analysis, ablations)}


def test_a_measure_that_ranks_heads_as_the_loss_does_has_the_correlation_1(analysis):
    of = found(analysis, ablation(analysis, lambda head: head["confidence"] ** 3 - 2))
    assert of["confidence", ALL].value == pytest.approx(1)
    assert of["confidence", ALL].number == 24
    assert of["confidence", "cross"].number == 8
    assert of["confidence", WITHIN].value == pytest.approx(1)
    assert abs(of["relevance", ALL].value) < 1


@pytest.mark.parametrize(("score", "sign"), [("loss", 1), ("bleu", -1), ("my_score", -1)])
def test_a_loss_gets_larger_and_any_other_score_smaller_where_a_head_mattered(
    analysis, score, sign
):
    one = ablation(analysis, lambda head: sign * head["relevance"], score=score)
    assert found(analysis, one)["relevance", ALL].value == pytest.approx(1)


def test_the_correlation_is_spearmans(analysis):
    chance = random.Random(0)
    changes = {}
    one = ablation(analysis, lambda head: changes.setdefault(id(head), chance.random()))
    heads = [head for layer in analysis["models"][0]["attentions"] for head in layer["heads"]]
    sides = [[head["gradient"] for head in heads], [changes[id(head)] for head in heads]]
    ranks = [np.argsort(np.argsort(side)) for side in sides]
    expected = np.corrcoef(*ranks)[0, 1]
    assert found(analysis, one)["gradient", ALL].value == pytest.approx(expected)


def test_heads_that_were_not_removed_do_not_count(analysis):
    one = ablation(analysis, lambda head: head["relevance"])
    few = dict(list(one.scores["loss"].items())[:5])
    assert found(analysis, one._replace(scores={"loss": few}))["relevance", ALL].number == 5


def test_a_measure_that_is_not_there_and_too_few_heads_have_no_correlation(analysis):
    for layer in analysis["models"][0]["attentions"]:
        for head in layer["heads"]:
            head["relevance"] = None
    one = ablation(analysis, lambda head: head["gradient"])
    assert {measure for measure, _ in found(analysis, one)} == {"gradient", "confidence"}
    two = dict(list(one.scores["loss"].items())[:2])
    assert found(analysis, one._replace(scores={"loss": two})) == {}


def test_the_interval_holds_the_true_correlation_in_about_19_of_20_samples():
    generator = np.random.default_rng(0)
    true, number, held = 0.6, 24, 0
    # Spearman's of two normal variables with this correlation
    rho = 6 / math.pi * math.asin(true / 2)
    for _ in range(2000):
        pairs = generator.multivariate_normal([0, 0], [[1, true], [true, 1]], number)
        ranks = pairs.argsort(axis=0).argsort(axis=0)
        low, high, _ = interval(float(np.corrcoef(ranks.T)[0, 1]), number)
        held += low <= rho <= high
    assert 0.93 <= held / 2000 <= 0.97


def test_p_is_small_where_chance_seldom_gives_as_much():
    generator = np.random.default_rng(1)
    ranks = np.array([generator.permutation(24) for _ in range(4000)])
    chance = np.abs([np.corrcoef(np.arange(24), row)[0, 1] for row in ranks])
    for value in (0.2, 0.4, 0.55):
        assert interval(value, 24)[2] == pytest.approx(float((chance >= value).mean()), abs=0.03)


def test_few_heads_have_no_interval():
    assert interval(0.5, 3) == (None, None, None)
    assert interval(-1.0, 4) == (None, None, None)


@pytest.mark.parametrize("value", [-1.0, 1.0])
def test_a_perfect_order_of_few_heads_is_not_certain(value):
    low, high, p = interval(value, 5)
    assert -1 <= low < high <= 1
    assert value in (low, high)
    # By chance it comes twice among the 120 orders of five
    assert p > 2 / 120


def correlation(measure, value, number=24):
    return Correlation("m", "loss", measure, ALL, number, value, *interval(value, number))


@pytest.mark.parametrize(
    ("relevance", "confidence", "words"),
    [
        (0.23, 0.75, "Relevance alone misleads here; confidence says more of it here (0.75)."),
        (0.05, -0.3, "Relevance alone misleads here."),
        # Which chance may have put above it
        (0.05, 0.2, "Relevance alone misleads here."),
        # Of intervals that are mostly the same
        (0.63, 0.74, "Relevance alone does not say here what a head is worth."),
        (0.45, 0.9, "Relevance alone does not say here what a head is worth; confidence says"),
        (0.85, 0.4, "Relevance may stand here for what a head is worth."),
    ],
)
def test_the_page_says_whether_relevance_alone_misleads(relevance, confidence, words):
    pair = [correlation("relevance", relevance), correlation("confidence", confidence)]
    (text,) = in_words(pair)
    assert words in text
    assert "24 heads" in text


@pytest.mark.parametrize(
    ("relevance", "confidence", "advises"),
    [(0.6, 0.2, False), (0.2, 0.6, True), (-0.5, -0.1, False)],
)
def test_no_measure_is_advised_against_what_it_says_within_layers(relevance, confidence, advises):
    values = {"relevance": relevance, "confidence": confidence}
    inner = [Correlation("m", "loss", name, WITHIN, 24, value) for name, value in values.items()]
    pair = [correlation("relevance", 0.23), correlation("confidence", 0.75)]
    (text,) = in_words([*pair, *inner])
    assert ("confidence says more of it here" in text) is advises


def test_of_few_heads_a_large_correlation_is_not_certain():
    (text,) = in_words([correlation("relevance", 0.76, 8)])
    assert "Of so few heads it is not certain" in text


def test_without_relevance_nothing_is_said_of_it():
    (text,) = in_words([correlation("confidence", 0.75)])
    assert "elevance" not in text
    assert "confidence ranks them much like this (0.75, 95 % from 0.45 to 0.90)" in text


def test_the_page_has_what_is_lost_without_each_head_among_its_measures(analysis):
    one = ablation(analysis, lambda head: head["head"] / 8, model=1)
    data = page_data(analysis, [], None, [one])
    (measure,) = [own for own in data["measures"] if own["name"] == "ablation-loss"]
    assert measure["title"] == "Δ loss without it"
    assert measure["isMain"]
    for layer in data["layers"]:
        for head in layer["heads"]:
            expected = head["head"] / 8 if layer["model"] == 1 else None
            assert head["ablation"] == {"loss": expected}
    assert {own["model"] for own in data["agreement"]} == {one.model}
    assert len(data["agreementWords"]) == 1


def test_without_an_ablation_nothing_is_made_up(analysis):
    data = page_data(analysis, [], None)
    assert data["agreement"] == data["agreementWords"] == []
    assert not any(own["name"].startswith("ablation") for own in data["measures"])
