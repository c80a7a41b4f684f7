"""Voita et al. 2019, section 5: roles that are planted are found, and thresholds are the paper's."""

from __future__ import annotations

import pytest
from claims.verdicts import FAILS, HOLDS, UNDECIDED, UNMEASURED

from tests.examples.tools.claims.planted import found, heads, judged, nothing

MODELS = ["softmax", "entmax"]
EXIST = ["voita-positional", "voita-syntactic", "voita-rare-words"]
OF_SUCH = ["voita-positional-important", "voita-positional-confident", "voita-rare-words-relevant"]


def softmax(seeds=(1, 2, 3)):
    return found(seeds, model="softmax", size="large", role="trained")


def without(model):
    return nothing(model=model, size="large", role="trained")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("claim", EXIST)
def test_roles_that_are_there_exist(claim, model):
    runs = found(model=model, size="large", role="trained")
    assert judged(f"{claim}-{model}", runs).verdict == HOLDS


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("claim", EXIST)
def test_roles_that_no_head_has_do_not_exist_and_the_nearest_head_is_named(claim, model):
    finding = judged(f"{claim}-{model}", without(model))
    assert finding.verdict == FAILS
    assert "the nearest is encoder-self:" in finding.why


@pytest.mark.parametrize("claim", [*OF_SUCH, "voita-roles-relevant"])
def test_of_heads_with_a_role_nothing_is_decided_where_there_are_none(claim):
    assert judged(f"{claim}-softmax", without("softmax")).verdict == UNDECIDED


@pytest.mark.parametrize("claim", EXIST)
def test_a_role_in_one_seed_alone_is_not_decidable(claim):
    runs = [*softmax()[:1], *without("softmax")[1:]]
    assert judged(f"{claim}-softmax", runs).verdict == UNDECIDED


def test_a_head_that_looks_two_tokens_ahead_is_not_adjacent():
    def plant(document):
        for head in heads(document):
            if head["positional"]:
                head["positional"]["offset"] = 2

    assert judged("voita-positional-softmax", softmax(), plant).verdict == FAILS


def _positional_heads(relevance, confidence):
    def plant(document):
        for head in heads(document, layer=0):
            if head["positional"]:
                head |= {"relevance": relevance, "confidence": confidence}
            else:
                head["relevance"] = head["confidence"] = 0.1 + 0.01 * head["head"]

    return plant


@pytest.mark.parametrize(
    ("relevance", "confidence", "expected"),
    [(0.4, 0.9, HOLDS), (0.01, 0.01, FAILS), (0.4, 0.01, FAILS)],
)
def test_positional_heads_have_to_be_both_relevant_and_confident(relevance, confidence, expected):
    plant = _positional_heads(relevance, confidence)
    finding = judged("voita-positional-important-softmax", softmax(), plant)
    assert finding.verdict == expected


@pytest.mark.parametrize(("confidence", "expected"), [(0.81, HOLDS), (0.8, FAILS)])
def test_every_positional_head_has_to_be_confident(confidence, expected):
    plant = _positional_heads(0.4, confidence)
    assert judged("voita-positional-confident-softmax", softmax(), plant).verdict == expected


def _subjects(accuracy, count):
    def plant(document):
        for head in heads(document):
            for relation in head["dependencies"].values():
                relation |= {"to_head": 0.2, "to_dependent": 0.2}
            if head["head"] == 0:
                head["dependencies"]["nsubj"]["to_head"] = accuracy
        document["analysis"]["annotations"]["relations"]["nsubj"]["count"] = count

    return plant


@pytest.mark.parametrize(
    ("accuracy", "count", "expected"),
    [(0.5, 4000, HOLDS), (0.499, 4000, FAILS), (0.5, 60, FAILS)],
)
def test_syntactic_heads_are_ten_points_above_the_baseline_and_beyond_chance(
    accuracy, count, expected
):
    plant = _subjects(accuracy, count)
    assert judged("voita-syntactic-softmax", softmax(), plant).verdict == expected


def test_without_parses_syntactic_heads_are_not_decidable():
    def unparsed(document):
        document["analysis"]["annotations"] = None
        for head in heads(document):
            head["dependencies"] = None

    finding = judged("voita-syntactic-softmax", softmax(), unparsed)
    assert finding.verdict == UNMEASURED
    assert "parses of the source were not given" in finding.why


def _rare(share, layer=0, relevance=None):
    def plant(document):
        for head in heads(document):
            head["rare_word"]["two_rarest"] = 0.1
        (*_, last) = heads(document, layer=layer)
        last["rare_word"]["two_rarest"] = share
        if relevance is not None:
            last["relevance"] = relevance

    return plant


@pytest.mark.parametrize(
    ("share", "layer", "expected"), [(0.5, 0, HOLDS), (0.499, 0, FAILS), (0.9, 1, FAILS)]
)
def test_rare_word_heads_are_in_the_lowest_layer_and_right_half_of_the_time(share, layer, expected):
    plant = _rare(share, layer)
    assert judged("voita-rare-words-softmax", softmax(), plant).verdict == expected


@pytest.mark.parametrize(("relevance", "expected"), [(0.9, HOLDS), (0.01, FAILS)])
def test_the_rare_word_head_has_to_be_the_most_relevant(relevance, expected):
    plant = _rare(0.7, relevance=relevance)
    finding = judged("voita-rare-words-relevant-softmax", softmax(), plant)
    assert finding.verdict == expected
    # One of eight heads in each of three seeds
    assert finding.numbers["p"] == pytest.approx(1 / 512 if expected == HOLDS else 1)


def test_a_rare_word_head_that_is_first_in_some_seeds_is_not_decidable():
    finding = judged(
        "voita-rare-words-relevant-softmax", softmax(), _rare(0.7, relevance=0.9), seed=1
    )
    assert finding.verdict == UNDECIDED


@pytest.mark.parametrize(("sign", "expected"), [(1, HOLDS), (-1, FAILS)])
def test_relevance_of_heads_near_a_role_decides_whether_roles_matter(sign, expected):
    def plant(document):
        for head in heads(document):
            near = head["rare_word"]["two_rarest"] = 0.3 + 0.05 * head["head"]
            head["relevance"] = 0.5 + sign * near / 2

    assert judged("voita-roles-relevant-entmax", found(model="entmax"), plant).verdict == expected
