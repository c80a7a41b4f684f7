"""What the claims of Voita, Niculae and Baan say of records that lack something."""

from __future__ import annotations

import pytest
from claims.verdicts import CLAIMS, FAILS, HOLDS, UNMEASURED

from tests.examples.tools.claims.planted import changed, found, heads, judged, nothing

PAPERS = ("Voita et al. 2019", "Niculae and Blondel 2017", "Baan et al. 2019")
KEYS = sorted(key for key, (claim, _) in CLAIMS.items() if claim.source.startswith(PAPERS))


def verdicts(runs):
    return {key: judged(key, runs) for key in KEYS}


def test_each_paper_has_claims_of_its_own():
    sources = {CLAIMS[key][0].source.split(",")[0] for key in KEYS}
    assert sources == set(PAPERS)


def test_an_empty_corpus_has_nothing_measured_and_says_why():
    for key, finding in verdicts([]).items():
        assert finding.verdict == UNMEASURED, key
        assert finding.why.startswith("the record has no run with "), key


def test_large_models_alone_leave_what_is_of_small_ones_unmeasured():
    runs = [run for run in found(size="large") if run["budget"] not in ("all36", "encoder4")]
    unmeasured = {key for key, one in verdicts(runs).items() if one.verdict == UNMEASURED}
    assert unmeasured == {
        key
        for key in KEYS
        if key.startswith(("niculae-", "baan-removal-bleu", "baan-zeros", "baan-sparse-encoder"))
        or key.startswith(("baan-sparse-removal", "voita-encoder-pruned"))
        or key.startswith("voita-roles-survive-encoder")
    }


@pytest.mark.parametrize("made", [found, nothing])
def test_one_seed_never_makes_a_claim_hold(made):
    assert [key for key, one in verdicts(made((1,))).items() if one.verdict == HOLDS] == []


def test_of_one_seed_no_claim_fails_though_its_model_has_no_head_with_a_role():
    assert [key for key, one in verdicts(nothing((1,))).items() if one.verdict == FAILS] == []


@pytest.mark.parametrize("measure", ["relevance", "confidence", "relative_position", "density"])
def test_measures_that_are_missing_are_named_and_nothing_breaks(measure):
    def forget(document):
        for attention in ("encoder-self", "decoder-self", "cross"):
            for head in heads(document, attention):
                head[measure] = None

    lacking = changed(found((1, 2)), forget)
    reasons = [one.why for one in verdicts(lacking).values()]
    assert any(f"the analysis has no {measure} of " in reason for reason in reasons)


def test_each_finding_says_what_how_and_why():
    for key, finding in verdicts(found()).items():
        # Equal weights are not among the planted measures
        if key not in ("niculae-segments", "niculae-clusters"):
            texts = (finding.measure, finding.values, finding.test, finding.why)
            assert all(len(text) > 3 for text in texts), key
            assert "nan" not in " ".join(texts), key
