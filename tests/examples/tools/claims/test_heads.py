"""Which heads have a role, at the borders of the papers' thresholds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from claims.heads import (
    Accuracy,
    accuracies,
    adjacent_share,
    is_positional,
    is_rare_word,
    removals,
    role_score,
)
from claims.record import Head, NotInRecord


def head(**measures):
    return Head("encoder-self", 0, 0, measures)


def run(relations=None, ablation=None):
    annotations = {"relations": relations} if relations else None
    return SimpleNamespace(analysis={"annotations": annotations}, ablation=ablation, run="a-run")


def offsets(offset, share, of_all):
    return {"share": {offset: share, "3": 1.0}, "maximum": {offset: of_all}}


def relation(count=100, baseline=0.4):
    direction = {"baseline": baseline, "offset": 1}
    return {"nsubj": {"count": count, "to_head": direction, "to_dependent": direction}}


def on_subjects(to_head, to_dependent=0.0):
    return head(dependencies={"nsubj": {"to_head": to_head, "to_dependent": to_dependent}})


@pytest.mark.parametrize(("offset", "expected"), [(-1, True), (1, True), (0, False), (2, False)])
def test_positional_heads_look_at_an_adjacent_token(offset, expected):
    assert is_positional(head(positional={"offset": offset, "share": 0.95})) is expected


def test_a_head_without_a_position_is_not_positional():
    assert not is_positional(head(positional=None))


def test_the_nearest_neighbour_is_named_with_its_share():
    assert adjacent_share(head(offsets={"share": {"-1": 0.2, "1": 0.3, "2": 0.9}})) == (0.3, "1")
    assert adjacent_share(head(offsets=None))[0] == 0


@pytest.mark.parametrize(("share", "expected"), [(0.5, True), (0.4999, False), (None, False)])
def test_half_of_the_sentences_make_a_rare_word_head(share, expected):
    assert is_rare_word(head(rare_word={"two_rarest": share})) is expected


@pytest.mark.parametrize(("share", "expected"), [(0.5, True), (0.499, False)])
def test_ten_points_above_the_baseline_make_a_syntactic_head(share, expected):
    assert Accuracy("nsubj to head", 100, share, 0.4).is_syntactic is expected


def test_relations_of_few_arcs_are_left_out():
    assert len(accuracies(on_subjects(0.9), run(relation(count=50)))) == 2
    assert accuracies(on_subjects(0.9), run(relation(count=49))) == []


def test_without_parses_no_relation_is_known():
    assert accuracies(head(dependencies=None), run()) == []


def test_other_relations_than_the_papers_are_left_out():
    measured = head(dependencies={"punct": {"to_head": 0.9, "to_dependent": 0.9}})
    assert accuracies(measured, run({"punct": relation()["nsubj"]})) == []


def test_a_head_with_a_role_has_the_highest_score():
    positional = head(offsets=offsets("-1", 0.9, 0.5))
    assert role_score(positional, run()) == pytest.approx(1)
    assert role_score(head(rare_word={"two_rarest": 0.8}), run()) == 1
    assert role_score(on_subjects(0.5), run(relation())) == pytest.approx(1)


def test_the_score_is_how_near_the_head_is_to_its_nearest_role():
    assert role_score(head(offsets=offsets("1", 0.45, 0.45)), run()) == pytest.approx(0.5)
    assert role_score(on_subjects(0.44), run(relation())) == pytest.approx(0.4)
    both = head(offsets=offsets("1", 0.45, 0.45), rare_word={"two_rarest": 0.4})
    assert role_score(both, run()) == pytest.approx(0.8)


def test_a_neighbour_that_few_queries_have_is_half_a_role_only():
    assert role_score(head(offsets=offsets("1", 0.95, 0.25)), run()) == pytest.approx(0.5)


def test_a_head_far_from_any_role_has_no_negative_score():
    assert role_score(on_subjects(0.1), run(relation())) == 0


def removed(names, loss, bleu=None):
    return {
        "heads": names,
        "loss": {"change": loss, "p_holm": 0.01},
        "bleu": None if bleu is None else {"change": bleu, "p_holm": 0.2},
    }


def test_harm_is_what_gets_worse_of_either_score():
    found = run(ablation={"removals": [removed(["cross:0.1"], 0.3, bleu=-2.0)]})
    assert removals(found, "loss")["cross:0.1"].loss == 0.3
    assert removals(found, "bleu")["cross:0.1"].loss == 2.0
    assert removals(found, "bleu")["cross:0.1"].p == 0.2


def test_heads_that_were_removed_together_are_left_out():
    both = [removed(["cross:0.1", "cross:0.2"], 0.3), removed(["cross:0.2"], 0.1)]
    assert list(removals(run(ablation={"removals": both}), "loss")) == ["cross:0.2"]


@pytest.mark.parametrize("ablation", [None, {"removals": [removed(["cross:0.1"], 0.3)]}])
def test_an_ablation_that_was_not_made_is_named(ablation):
    with pytest.raises(NotInRecord, match="no ablation of a-run with bleu"):
        removals(run(ablation=ablation), "bleu")
