"""Voita et al. 2019, section 6.2.2: which heads pruning leaves."""

from __future__ import annotations

import pytest
from claims.verdicts import FAILS, HOLDS, UNDECIDED, UNMEASURED

from tests.examples.tools.claims.planted import found, heads, judged, nothing

# Of the encoder the planted pruning leaves heads 0, 1, 2 and 7 of layer 0, and head 0 of others
LEFT = {(0, 0), (0, 1), (0, 2), (0, 7), (1, 0), (2, 0)}


def entmax():
    return found(model="entmax", size="large")


@pytest.mark.parametrize("model", ["softmax", "entmax"])
@pytest.mark.parametrize(
    "claim", ["voita-roles-survive", "voita-roles-survive-encoder", "voita-positional-kept"]
)
def test_heads_with_roles_that_are_left_are_found(claim, model):
    assert judged(f"{claim}-{model}", found(model=model, size="large")).verdict == HOLDS


@pytest.mark.parametrize(
    "claim",
    [
        "voita-roles-left",
        "voita-roles-survive",
        "voita-roles-survive-encoder",
        "voita-positional-kept",
    ],
)
def test_of_roles_nothing_is_decided_where_no_head_has_one(claim):
    assert judged(f"{claim}-entmax", nothing(model="entmax", size="large")).verdict == UNDECIDED


def _removed(document):
    document["kept"]["encoder-self"] = [[3, 4, 5, 6], [1], [1]]


@pytest.mark.parametrize(("of_those_left", "expected"), [(True, HOLDS), (False, FAILS)])
def test_whether_heads_with_roles_survive_is_found(of_those_left, expected):
    def plant(document):
        for layer in range(3):
            for head in heads(document, layer=layer):
                is_left = (layer, head["head"]) in LEFT
                share = 0.6 if is_left == of_those_left else 0.1
                head |= {"rare_word": {"two_rarest": share}, "offsets": None, "dependencies": None}

    finding = judged("voita-roles-survive-entmax", entmax(), plant, role="trained")
    assert finding.verdict == expected
    assert finding.numbers["value"] == of_those_left


def test_few_positional_heads_that_are_removed_might_be_chance():
    finding = judged(
        "voita-positional-kept-entmax", entmax(), _removed, budget="all24", role="pruned"
    )
    assert (finding.numbers["positional"], finding.numbers["left"]) == (6, 0)
    assert finding.verdict == UNDECIDED


def test_all_roles_that_are_left_are_found():
    finding = judged("voita-roles-left-entmax", entmax())
    assert finding.verdict == HOLDS
    assert finding.numbers["before"] == finding.numbers["after"] == 12


def _loses_its_rare_word_head(document):
    for head in heads(document):
        head["rare_word"]["two_rarest"] = 0.1


@pytest.mark.parametrize(("seed", "expected"), [({}, FAILS), ({"seed": 2}, UNDECIDED)])
def test_a_role_that_is_lost_in_each_seed_is_not_left(seed, expected):
    finding = judged(
        "voita-roles-left-entmax", entmax(), _loses_its_rare_word_head, role="pruned", **seed
    )
    assert finding.verdict == expected


def _with(measure, sign):
    """Give the heads that are left the most, or the least, of a measure."""

    def plant(document):
        for attention, left in (("encoder-self", LEFT), ("decoder-self", None), ("cross", None)):
            for layer in range(3):
                for head in heads(document, attention, layer):
                    place = (layer, head["head"])
                    stays = place in left if left else head["head"] in _LEFT_OF_DECODER[layer]
                    head[measure] = 0.5 + sign * (0.2 if stays else -0.2) + 0.001 * head["head"]

    return plant


_LEFT_OF_DECODER = {0: (0, 1, 7), 1: (0, 1, 2), 2: (0, 1, 2)}


@pytest.mark.parametrize("measure", ["relevance", "confidence"])
@pytest.mark.parametrize(("sign", "expected"), [(1, HOLDS), (-1, FAILS)])
def test_what_the_heads_that_are_left_had_more_of_is_found(measure, sign, expected):
    finding = judged(
        f"voita-{measure}-survives-entmax", entmax(), _with(measure, sign), role="trained"
    )
    assert finding.verdict == expected
    assert finding.numbers["value"] == (1 if sign == 1 else 0)


def test_confidence_that_is_of_the_layer_alone_is_said_to_be():
    """Of the lowest layer more heads are left, and all of its heads are more confident."""

    def plant(document):
        for attention in ("encoder-self", "decoder-self", "cross"):
            for layer in range(3):
                for head in heads(document, attention, layer):
                    lowest = attention == "encoder-self" and layer == 0
                    head["confidence"] = 0.9 if lowest else 0.1

    finding = judged("voita-confidence-survives-entmax", entmax(), plant, role="trained")
    assert finding.verdict == HOLDS
    assert (
        "; of heads of the same layer 0.50 [0.50, 0.50] (0.50, 0.50, 0.50), p = " in finding.values
    )
    assert "but chance alone might do as much of heads of the same layer" in finding.why


def test_runs_without_the_heads_that_they_kept_are_not_decidable():
    def forget(document):
        document["kept"] = None

    finding = judged("voita-roles-survive-entmax", entmax(), forget, role="pruned")
    assert finding.verdict == UNMEASURED
    assert "does not say which heads entmax-large-seed1-all24-pruned kept" in finding.why
