"""Baan et al. 2019, sections 5.5 and 6.1: heads that are removed one at a time."""

from __future__ import annotations

import pytest
from claims.verdicts import FAILS, HOLDS, UNDECIDED

from tests.examples.tools.claims.planted import found, heads, judged, nothing

NAMES = [("baan-removal-bleu", "small"), ("baan-removal-loss", "large")]


@pytest.mark.parametrize("model", ["softmax", "entmax"])
@pytest.mark.parametrize(("claim", "size"), NAMES)
def test_heads_whose_removal_is_significant_refute_that_none_is(claim, size, model):
    finding = judged(f"{claim}-{model}", found(model=model, size=size))
    assert finding.verdict == FAILS
    assert 0.1 < finding.numbers["share"] < 0.4


@pytest.mark.parametrize(("claim", "size"), NAMES)
def test_where_no_removal_is_significant_the_claim_holds(claim, size):
    finding = judged(f"{claim}-softmax", nothing(model="softmax", size=size))
    assert (finding.verdict, finding.numbers["share"]) == (HOLDS, 0)


def test_a_significant_removal_in_some_seeds_is_not_decidable():
    runs = [*found((1,), model="softmax"), *nothing((2, 3), model="softmax")]
    finding = judged("baan-removal-bleu-softmax", runs)
    assert (finding.verdict, finding.why) == (
        UNDECIDED,
        "1 of 3 seeds have a head whose removal makes a significant difference",
    )


@pytest.mark.parametrize(("samples", "expected"), [(479, UNDECIDED), (480, HOLDS)])
def test_too_few_resamples_cannot_say_that_no_removal_is_significant(samples, expected):
    def resample(document):
        document["ablation"]["significance"]["bootstrap"] = samples

    # Of 24 heads, p after Holm is at least 24 / 480 = 0.05, or 24 / 481
    runs = nothing(model="softmax", size="small")
    assert judged("baan-removal-bleu-softmax", runs, resample).verdict == expected


def _costs(cost):
    """Give the removal of each head of the encoder such a cost in loss."""

    def plant(document):
        for removal in document["ablation"]["removals"]:
            (name,) = removal["heads"]
            if name.startswith("encoder-self:"):
                layer, head = map(int, name.split(":")[1].split("."))
                removal["loss"]["change"] = cost(layer, head)

    return plant


def _near_a_role(sign):
    def plant(document):
        for head in heads(document):
            head["rare_word"]["two_rarest"] = 0.2 + 0.01 * head["head"]
        # One head has a role
        (first, *_) = heads(document)
        first["positional"] = {"offset": 1, "share": 0.95, "confidence": 0.9}
        first["offsets"]["share"]["1"] = first["offsets"]["maximum"]["1"] = 0.3
        _costs(lambda layer, head: sign * 0.01 * head)(document)

    return plant


def _large():
    return nothing(model="softmax", size="large", role="trained")


@pytest.mark.parametrize(("sign", "expected"), [(1, FAILS), (-1, HOLDS)])
def test_interpretable_heads_that_cost_more_refute_that_they_do_not(sign, expected):
    finding = judged("baan-specialised-softmax", _large(), _near_a_role(sign))
    assert finding.verdict == expected


def test_without_interpretable_heads_their_cost_is_not_decidable():
    finding = judged("baan-specialised-softmax", _large())
    assert finding.verdict == UNDECIDED
    assert finding.why.startswith("of the correlation: no head of the encoder ")


def _neighbours(sign, most):
    def plant(document):
        for attention in ("encoder-self", "cross"):
            for layer in range(3):
                for head in heads(document, attention, layer):
                    head["relative_position"] = most - 0.05 * head["head"]
        for removal in document["ablation"]["removals"]:
            removal["loss"]["change"] = -sign * 0.01 * int(removal["heads"][0].split(".")[1])

    return plant


@pytest.mark.parametrize(
    ("sign", "most", "expected"),
    [(1, 0.8, HOLDS), (-1, 0.8, FAILS), (1, 0.79, UNDECIDED)],
)
def test_heads_that_look_at_neighbours_matter_where_they_cost_more(sign, most, expected):
    finding = judged("baan-relative-position-softmax", _large(), _neighbours(sign, most))
    assert finding.verdict == expected


# Pruning leaves the first heads of each layer, but for the last of the lowest
@pytest.mark.parametrize(
    ("most", "expected"), [({"most": 0.95}, HOLDS), ({"most": 0.79}, UNDECIDED)]
)
def test_heads_that_look_at_neighbours_and_are_left_are_found(most, expected):
    runs = nothing(model="softmax", size="large")
    finding = judged(
        "baan-relative-position-kept-softmax", runs, _neighbours(1, **most), role="trained"
    )
    assert finding.numbers["value"] > 0.7
    assert finding.verdict == expected
