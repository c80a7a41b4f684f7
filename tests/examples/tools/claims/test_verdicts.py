"""The rules by which a verdict is reached."""

from __future__ import annotations

import pytest
from claims.record import NotInRecord
from claims.statistics import Bootstrap
from claims.verdicts import (
    CLAIMS,
    FAILS,
    HOLDS,
    UNDECIDED,
    UNMEASURED,
    Claim,
    Decision,
    claim,
    combined,
    exists,
    holm,
    judge,
    more_than,
    negated,
    undecided,
    within,
)

from tests.examples.tools.claims import synthetic

ABOVE, BELOW, AROUND = [1.0, 1.1, 0.9], [-1.0, -1.1, -0.9], [1.0, -1.0, 0.1]
SURE, UNSURE = Bootstrap(1.0, 0.5, 1.5, 0.001), Bootstrap(1.0, -0.5, 2.5, 0.2)


@pytest.mark.parametrize(
    ("differences", "bootstrap", "margin", "verdict"),
    [
        (ABOVE, None, 0, HOLDS),
        (BELOW, None, 0, FAILS),
        (AROUND, None, 0, UNDECIDED),
        ([0.01, -0.01, 0.0], None, 0.1, FAILS),
        ([0.01, -0.01, 0.0], None, 0, UNDECIDED),
        (ABOVE, SURE, 0, HOLDS),
        (ABOVE, UNSURE, 0, UNDECIDED),
        (BELOW, UNSURE, 0, UNDECIDED),
        ([0.01, -0.01, 0.0], UNSURE, 0.1, UNDECIDED),
        ([0.01, -0.01, 0.0], Bootstrap(0.0, -0.05, 0.05, 0.9), 0.1, FAILS),
        ([5.0], SURE, 0, UNDECIDED),
    ],
)
def test_more_holds_where_seeds_and_sentences_say_so(differences, bootstrap, margin, verdict):
    assert more_than(differences, bootstrap, margin).verdict == verdict


def test_a_difference_that_holds_and_is_of_no_importance_says_so():
    assert "of no importance" in more_than([0.01, 0.011, 0.009], margin=0.1).why


@pytest.mark.parametrize(
    ("differences", "bootstrap", "verdict"),
    [
        ([0.1, -0.1, 0.0], Bootstrap(0.0, -0.2, 0.2, 0.5), HOLDS),
        ([0.1, -0.1, 0.0], Bootstrap(0.0, -0.7, 0.2, 0.5), UNDECIDED),
        ([0.1, -0.9, 0.5], Bootstrap(0.0, -0.2, 0.2, 0.5), UNDECIDED),
        (ABOVE, Bootstrap(1.0, 0.6, 1.4, 0.001), FAILS),
        (ABOVE, Bootstrap(1.0, 0.4, 1.6, 0.001), UNDECIDED),
        ([0.1, -0.1, 0.0], Bootstrap(0.8, 0.6, 1.4, 0.001), UNDECIDED),
        (ABOVE, Bootstrap(-1.0, -1.4, -0.6, 0.001), UNDECIDED),
        (BELOW, None, FAILS),
        ([0.0], None, UNDECIDED),
    ],
)
def test_within_holds_where_both_intervals_lie_in_the_limits(differences, bootstrap, verdict):
    assert within(differences, 0.5, bootstrap).verdict == verdict


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [
        ([1, 2, 1], HOLDS),
        ([0, 0, 0], FAILS),
        ([1, 0, 2], UNDECIDED),
        ([3], UNDECIDED),
        ([0], UNDECIDED),
    ],
)
def test_heads_with_a_role_exist_where_every_seed_has_one(counts, verdict):
    assert exists(counts).verdict == verdict


def test_holm_corrects_as_by_hand():
    # 0.01 is one of three, 0.02 of two, and 0.03 alone, but no lower than the one before
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.6, 0.7]) == [1, 1]


def test_a_claim_of_several_things_needs_all_of_them():
    yes, no = Decision(HOLDS, "yes"), Decision(FAILS, "no")
    open_ = Decision(UNDECIDED, "open")
    assert combined({"a": yes, "b": yes}) == yes
    assert combined({"a": yes, "b": no, "c": open_}) == Decision(FAILS, "b: no")
    assert combined({"a": yes, "b": open_}) == Decision(UNDECIDED, "b: open")


def test_the_negation_of_what_is_not_decidable_is_not_either():
    assert negated(Decision(FAILS, "no")).verdict == HOLDS
    assert negated(Decision(UNDECIDED, "open")).verdict == UNDECIDED


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr("claims.verdicts.CLAIMS", dict(CLAIMS))
    return claim


def test_two_claims_of_one_name_are_refused(registered):
    registered(Claim("test-one", "nobody", "Something."))(lambda corpus: undecided("–", "no"))
    with pytest.raises(ValueError, match="two claims called 'test-one'"):
        registered(Claim("test-one", "nobody", "Something else."))


def test_what_the_record_lacks_was_not_measured_and_the_reason_says_what(registered):
    def lacking(corpus):
        raise NotInRecord("the record has no run with model entmax")

    registered(Claim("test-two", "nobody", "Something."))(lacking)
    found = judge("test-two", synthetic.corpus_of([]))
    assert (found.verdict, found.why) == (UNMEASURED, "the record has no run with model entmax")
