"""Voita et al. 2019, section 4: relevance that is planted is found."""

from __future__ import annotations

import pytest
from claims.verdicts import FAILS, HOLDS, UNDECIDED

from tests.examples.tools.claims.planted import found, heads, judged, nothing

FEW, CONFIDENCE = "voita-few-heads-{}", "voita-confidence-{}"
MODELS = ["softmax", "entmax"]


@pytest.mark.parametrize("model", MODELS)
def test_relevance_of_one_head_in_each_layer_is_found(model):
    finding = judged(FEW.format(model), found(model=model, size="large"))
    assert finding.verdict == HOLDS
    assert finding.numbers["chance"] == pytest.approx(0.554, abs=0.001)
    assert finding.numbers["value"] > 0.65


@pytest.mark.parametrize("model", MODELS)
def test_heads_of_nearly_equal_relevance_are_no_few_heads(model):
    assert judged(FEW.format(model), nothing(model=model, size="large")).verdict == FAILS


def test_shares_like_a_stick_broken_at_random_are_not_decidable():
    # The mean parts of a stick broken into eight
    parts = [sum(1 / n for n in range(rank, 9)) / 8 for rank in range(1, 9)]

    def plant(document):
        for head in heads(document):
            head["relevance"] = parts[head["head"]]

    finding = judged(FEW.format("softmax"), found(model="softmax", size="large"), plant)
    assert finding.numbers["value"] == pytest.approx(finding.numbers["chance"])
    assert finding.verdict == UNDECIDED


@pytest.mark.parametrize("model", MODELS)
def test_agreement_of_confidence_and_relevance_is_found(model):
    assert judged(CONFIDENCE.format(model), found(model=model, size="large")).verdict == HOLDS


@pytest.mark.parametrize("model", MODELS)
def test_confidence_without_relation_to_relevance_does_not_agree(model):
    assert judged(CONFIDENCE.format(model), nothing(model=model, size="large")).verdict != HOLDS


def test_confidence_that_falls_with_relevance_disagrees():
    def plant(document):
        for head in heads(document):
            head["confidence"] = 1 - head["relevance"]

    finding = judged(CONFIDENCE.format("entmax"), found(model="entmax", size="large"), plant)
    assert finding.verdict == FAILS
    assert finding.numbers["value"] == pytest.approx(-1)


def test_agreement_in_the_decoder_alone_is_none_of_the_encoder():
    def plant(document):
        for head in heads(document):
            head["confidence"] = 0.5

    finding = judged(CONFIDENCE.format("softmax"), found(model="softmax", size="large"), plant)
    assert (finding.verdict, finding.why) == (
        UNDECIDED,
        "no layer of the encoder has heads that differ",
    )
