"""Baan et al. 2019, sections 6.2 and 6.3: what sparse attention changes."""

from __future__ import annotations

import pytest
from claims.verdicts import FAILS, HOLDS, UNDECIDED, UNMEASURED

from tests.examples.tools.claims.planted import changed, found, heads, judged, nothing, scored


@pytest.mark.parametrize(
    ("difference", "expected"), [(0.0, HOLDS), (1.0, HOLDS), (-0.5, UNDECIDED), (-2.0, FAILS)]
)
def test_a_sparse_encoder_loses_little_where_it_loses_half_a_point_at_most(difference, expected):
    runs = scored("small", bleu={"sparse-encoder": difference})
    assert judged("baan-sparse-encoder", runs).verdict == expected


def _density(density):
    def plant(document):
        for head in heads(document):
            head["density"] = density + 0.001 * document["seed"]

    return plant


@pytest.mark.parametrize(("density", "expected"), [(0.01, HOLDS), (0.028, UNDECIDED), (0.1, FAILS)])
def test_zeros_are_held_against_the_papers_share(density, expected):
    assert judged("baan-zeros", found(size="small"), _density(density)).verdict == expected


def _significant(share):
    def plant(document):
        removals = document["ablation"]["removals"]
        for place, removal in enumerate(removals):
            removal["bleu"]["p_holm"] = 0.01 if place < share * len(removals) else 0.9

    return plant


@pytest.mark.parametrize(("share", "expected"), [(0.75, HOLDS), (0.25, FAILS), (0.0, FAILS)])
def test_more_heads_of_sparse_attention_matter_where_more_are_significant(share, expected):
    planted = [
        *changed(found(size="small", model="softmax"), _significant(0.25)),
        *changed(found(size="small", model="entmax"), _significant(share)),
    ]
    assert judged("baan-sparse-removal", planted).verdict == expected


def _scores(measure, by_model):
    def plant(document):
        for attention in ("encoder-self", "cross"):
            for head in heads(document, attention):
                head[measure] = by_model.get(document["model"], 0.2)

    return plant


@pytest.mark.parametrize(
    ("claim", "measure"),
    [("baan-sparse-position", "relative_position"), ("baan-sparse-tags", "pos_kl")],
)
@pytest.mark.parametrize(("sparse", "expected"), [(0.3, HOLDS), (0.2, FAILS), (0.1, FAILS)])
def test_what_sparse_heads_specialise_in_is_found(claim, measure, sparse, expected):
    plant = _scores(measure, {"sparsemax": sparse})
    assert judged(claim, found(size="large"), plant, role="trained").verdict == expected


def test_parts_of_speech_are_not_decidable_without_parses():
    def unparsed(document):
        for attention in ("encoder-self", "decoder-self", "cross"):
            for head in heads(document, attention):
                head["pos_kl"] = None

    finding = judged("baan-sparse-tags", found(size="large"), unparsed)
    assert (finding.verdict, finding.why) == (
        UNMEASURED,
        "the analysis has no pos_kl of encoder-self:0.0",
    )


def test_models_that_lose_as_much_by_pruning_are_no_evidence_that_sparse_ones_lose_less():
    assert judged("baan-sparse-pruned", nothing(size="large")).verdict != HOLDS


@pytest.mark.parametrize(("model", "expected"), [("softmax", HOLDS), ("entmax", FAILS)])
def test_which_of_both_loses_more_by_pruning_is_found(model, expected):
    cheap = scored("large", role_bleu={"all24-pruned": 0.0})
    dear = scored("large", role_bleu={"all24-pruned": -2.0})
    runs = [
        *[run for run in dear if run["model"] == model],
        *[run for run in cheap if run["model"] != model],
    ]
    finding = judged("baan-sparse-pruned", runs)
    assert finding.verdict == expected
    assert abs(finding.numbers["difference"]) == pytest.approx(2, abs=0.4)
