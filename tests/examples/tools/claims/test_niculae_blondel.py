"""Niculae and Blondel 2017: mappings within 1 BLEU, and what they do to weights."""

from __future__ import annotations

import pytest
from claims.verdicts import FAILS, HOLDS, UNDECIDED, UNMEASURED

from tests.examples.tools.claims.planted import found, heads, judged, scored

MAPPINGS = ["fusedmax", "oscarmax", "sqpnormmax", "sparsemax"]


def _bleu(mapping, difference):
    return scored("small", bleu={f"cross-{mapping}": difference})


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_mapping_as_good_as_softmax_is_within_one_point(mapping):
    assert judged(f"niculae-bleu-{mapping}", found(size="small")).verdict == HOLDS


@pytest.mark.parametrize("difference", [-2.5, 2.5])
def test_a_mapping_that_is_far_from_softmax_is_not(difference):
    assert judged("niculae-bleu-fusedmax", _bleu("fusedmax", difference)).verdict == FAILS


def test_a_mapping_about_a_point_away_is_not_decidable():
    assert judged("niculae-bleu-oscarmax", _bleu("oscarmax", -1.0)).verdict == UNDECIDED


def test_mechanisms_that_are_alike_are_all_within_a_point_of_the_best():
    assert judged("niculae-best", found(size="small")).verdict == HOLDS


def test_one_mechanism_that_is_far_from_the_best_is_named():
    finding = judged("niculae-best", _bleu("sqpnormmax", -2.5))
    assert finding.verdict == FAILS
    assert finding.why.startswith("of sq-pnorm-max against ")


def test_the_best_is_chosen_by_validation_loss_not_by_the_test_set():
    def better(document):
        for point in document["curve"]:
            point["valid_nll_loss"] -= 1

    runs = _bleu("sqpnormmax", -2.5)
    finding = judged("niculae-best", runs, better, model="cross-sqpnormmax")
    assert finding.verdict == FAILS
    assert " against sq-pnorm-max" in finding.why


def test_sparsemax_in_all_attentions_is_not_what_is_compared():
    runs = [run for run in found(size="small") if run["model"] != "sparsemax"]
    assert judged("niculae-bleu-sparsemax", runs).verdict == HOLDS
    runs = [run for run in found(size="small") if run["model"] != "cross-sparsemax"]
    finding = judged("niculae-bleu-sparsemax", runs)
    assert finding.verdict == UNMEASURED
    assert "model cross-sparsemax" in finding.why


def test_a_mechanism_that_is_missing_leaves_the_best_unmeasured():
    runs = [run for run in found(size="small") if run["model"] != "cross-oscarmax"]
    finding = judged("niculae-best", runs)
    assert (finding.verdict, finding.why) == (
        UNMEASURED,
        "the record has no run with model cross-oscarmax, size small, role trained",
    )


def _groups(structured, weight):
    """Weight on runs and clusters with one mapping, and next to none with the others."""

    def plant(document):
        share = weight if document["model"] == structured else 0.001
        for head in heads(document, "cross"):
            head["equal_weights"] = {"run_weight": share, "cluster_weight": share}

    return plant


@pytest.mark.parametrize(
    ("claim", "model"), [("segments", "cross-fusedmax"), ("clusters", "cross-oscarmax")]
)
@pytest.mark.parametrize(("weight", "expected"), [(0.4, HOLDS), (0.03, HOLDS), (0.001, FAILS)])
def test_groups_of_equal_weight_are_found(claim, model, weight, expected):
    finding = judged(f"niculae-{claim}", found(size="small"), _groups(model, weight))
    assert finding.verdict == expected


def test_a_small_share_of_groups_is_called_small():
    plant = _groups("cross-fusedmax", 0.008)
    assert "of no importance" in judged("niculae-segments", found(size="small"), plant).why


def test_a_share_of_groups_that_differs_between_seeds_is_undecided():
    def plant(document):
        _groups("cross-oscarmax", (0.012, 0.022, 0.008)[document["seed"] - 1])(document)

    assert judged("niculae-clusters", found(size="small"), plant).verdict == UNDECIDED


def test_mappings_that_leave_words_out_are_found():
    assert judged("niculae-sparse", found(size="small")).verdict == HOLDS


def test_a_mapping_that_leaves_no_word_out_is_not_sparse():
    def dense(document):
        for head in heads(document, "cross"):
            head["density"] = 1.0

    finding = judged("niculae-sparse", found(size="small"), dense, model="cross-sqpnormmax")
    assert finding.verdict == FAILS
