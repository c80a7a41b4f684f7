"""The rules for verdicts: every verdict that they give, and how several become one."""

import pytest
from claims.record import NothingToJudge, NotInRecord
from claims.rules import (
    FAILS,
    HOLDS,
    UNDECIDED,
    UNMEASURED,
    Claim,
    Decision,
    Finding,
    in_each,
    loses_at_most,
    more_than,
    over_heads,
    several,
    within,
)
from claims.statistics import Bootstrap, HeadStatistic

ABOVE, BELOW, AROUND, NEAR = [1.0, 1.1, 0.9], [-1.0, -1.1, -0.9], [1.0, -1.0, 0.1], [0.1, -0.1, 0.0]
SURE, UNSURE = Bootstrap(1.0, 0.5, 1.5, 0.001), Bootstrap(1.0, -0.5, 2.5, 0.2)


@pytest.mark.parametrize(
    ("differences", "bootstrap", "margin", "verdict"),
    [
        (ABOVE, None, 0, HOLDS),
        (BELOW, None, 0, FAILS),
        (AROUND, None, 0, UNDECIDED),
        ([0.01, -0.01, 0.0], None, 0.1, FAILS),
        (ABOVE, SURE, 0, HOLDS),
        (ABOVE, UNSURE, 0, UNDECIDED),
        ([0.01, -0.01, 0.0], UNSURE, 0.1, UNDECIDED),
        ([5.0], SURE, 0, UNDECIDED),
    ],
)
def test_more_holds_only_if_seeds_and_sentences_agree(differences, bootstrap, margin, verdict):
    assert more_than(differences, bootstrap, margin).verdict == verdict


@pytest.mark.parametrize(
    ("differences", "low", "high", "near", "loss"),
    [
        (NEAR, -0.5, 0.5, HOLDS, HOLDS),
        (NEAR, -0.7, 0.2, UNDECIDED, UNDECIDED),
        ([0.1, -0.9, 0.5], -0.2, 0.2, UNDECIDED, UNDECIDED),
        (ABOVE, 0.6, 1.4, FAILS, HOLDS),
        (NEAR, 0.6, 1.4, UNDECIDED, HOLDS),
        (BELOW, -1.4, -0.6, FAILS, FAILS),
        (BELOW, -1.4, -0.4, UNDECIDED, UNDECIDED),
        ([0.0], -0.1, 0.1, UNDECIDED, UNDECIDED),
    ],
)
def test_both_intervals_must_be_within_the_limit_and_a_gain_is_no_loss(
    differences, low, high, near, loss
):
    bootstrap = Bootstrap(0.0, low, high, 0.5)
    assert within(differences, bootstrap, 0.5).verdict == near
    assert loses_at_most(differences, bootstrap, 0.5).verdict == loss


@pytest.mark.parametrize(
    ("counts", "verdict"),
    [([1, 2, 1], HOLDS), ([0, 0], FAILS), ([1, 0, 2], UNDECIDED), ([3], UNDECIDED)],
)
def test_heads_with_a_role_exist_if_every_seed_has_one(counts, verdict):
    assert in_each(counts, "one").verdict == verdict


def of_seeds(values, greater=0.5, less=0.5):
    return HeadStatistic(list(values), 0.5, greater, less)


@pytest.mark.parametrize(
    ("statistic", "margin", "expected"),
    [
        (of_seeds([0.7, 0.9, 0.8], greater=0.049), 0.1, HOLDS),
        (of_seeds([0.7, 0.9, 0.8], greater=0.05), 0.1, UNDECIDED),
        (of_seeds([0.99, 0.9, 0.5], greater=0.001), 0.1, UNDECIDED),
        (of_seeds([0.3, 0.1, 0.2], less=0.049), 0.1, FAILS),
        (of_seeds([0.51, 0.5, 0.49]), 0.1, FAILS),
        (of_seeds([0.61, 0.61, 0.61]), 0.1, UNDECIDED),
        (of_seeds([0.9], greater=0.001), 0.1, UNDECIDED),
        (of_seeds([0.5, 0.5, 0.5]), 0, UNDECIDED),
    ],
)
def test_heads_have_more_only_if_chance_and_all_seeds_agree(statistic, margin, expected):
    assert over_heads(statistic, margin).verdict == expected
    # Corrected p-values replace those of the statistic
    sure = of_seeds([0.7, 0.9, 0.8], greater=0.03)
    assert over_heads(sure, 0.1, (0.06, 1.0)).verdict == UNDECIDED


def test_a_claim_with_several_parts_needs_all_of_them():
    decisions = (HOLDS, "yes"), (FAILS, "no"), (UNDECIDED, "open")
    yes, no, open_ = (Finding(Decision(*one), one[1], "counted") for one in decisions)
    assert several({"a": yes, "b": yes}) == Finding(yes.decision, "a yes; b yes", "counted")
    assert several({"a": yes, "b": no, "c": open_}).decision == (FAILS, "b: no")
    assert several({"a": yes, "b": open_}).decision == (UNDECIDED, "b: open")
    assert [one.denied().decision.verdict for one in (yes, no, open_)] == [FAILS, HOLDS, UNDECIDED]


@pytest.mark.parametrize(
    ("error", "verdict"), [(NotInRecord, UNMEASURED), (NothingToJudge, UNDECIDED)]
)
def test_missing_records_are_the_reason_of_a_verdict(error, verdict):
    def lacking(corpus):
        raise error("the record has no run with model entmax")

    claim = Claim("nobody", "nobody, 1", "Something.", "a number", lacking)
    expected = Decision(verdict, "the record has no run with model entmax")
    assert claim.judged(None).decision == expected
