from typing import Any

import pytest

from fairseq_entmax.analysis.report.roles import roles

NOTHING: dict[str, Any] = {
    "head": 0,
    "values": {"alpha": 1.5},
    "density": 0.4,
    "confidence": 0.3,
    "offsets": None,
    "positional": None,
    "rare_word": None,
    "subword_merging": None,
    "final_punctuation": None,
    "gate": None,
    "dependencies": None,
    "named_entity": None,
}
ANNOTATIONS = {
    "relations": {
        "nsubj": {
            "count": 50,
            "to_head": {"baseline": 0.35, "offset": 1},
            "to_dependent": {"baseline": 0.4, "offset": -1},
        },
        "vocative": {
            "count": 49,
            "to_head": {"baseline": 0.1, "offset": 1},
            "to_dependent": {"baseline": 0.1, "offset": -1},
        },
        "fixed": {
            "count": 60,
            "to_head": {"baseline": None, "offset": None},
            "to_dependent": {"baseline": None, "offset": None},
        },
    },
    "named_entities": 0.05,
}


def found(attention="encoder-self", annotations=ANNOTATIONS, **measures):
    return roles({**NOTHING, **measures}, {"annotations": annotations}, attention)


def test_on_sentences_of_ones_own_no_role_is_named_but_a_closed_gate():
    own = {"annotations": None, "data": {"own": {"words": True}}}
    telling = {**NOTHING, "positional": {"offset": -1, "share": 1.0, "confidence": 0.9}}
    telling |= {"copy_agreement": {"largest": 1.0}, "confidence": 1.0}
    assert roles(telling, own, "cross", 0.1) == []
    assert roles(telling, {**own, "data": {}}, "cross", 0.1) != []
    assert roles({**telling, "gate": 0}, own, "cross", 0.1) == ["closed"]


def positional(offset, share=0.97):
    return {"offset": offset, "share": share, "confidence": 0.9}


def test_a_head_without_anything_that_stands_out_has_no_role():
    assert found() == []
    assert found(annotations=None) == []
    assert found(density=None, confidence=None) == []


@pytest.mark.parametrize(
    ("attention", "offset", "words"),
    [
        ("encoder-self", -1, "previous token, 97 %"),
        ("encoder-self", 0, "current token, 97 %"),
        ("encoder-self", 1, "next token, 97 %"),
        ("encoder-self", 2, "token 2 ahead, 97 %"),
        ("decoder-self", -3, "token 3 back, 97 %"),
        ("cross", 0, "same position, 97 %"),
        ("cross", -1, "previous position, 97 %"),
        ("cross", 4, "position 4 ahead, 97 %"),
    ],
)
def test_an_offset_is_put_into_words(attention, offset, words):
    assert found(attention, positional=positional(offset)) == [words]


@pytest.mark.parametrize(
    ("shares", "words"),
    [
        ({"-1": 0.5, "0": 0.2}, ["often previous token, 50 %"]),
        ({"-1": 0.499, "0": None}, []),
        ({"-1": None}, []),
        ({"0": 0.3, "2": 0.89}, ["often token 2 ahead, 89 %"]),
    ],
)
def test_half_of_the_queries_at_one_offset_is_a_habit(shares, words):
    assert found(offsets={"share": shares}) == words
    if words:
        given = found(offsets={"share": shares}, positional=positional(-1))
        assert given == ["previous token, 97 %"]


@pytest.mark.parametrize(("share", "words"), [(0.499, []), (0.5, ["rare words, 50 %"])])
def test_rare_words_from_half_of_the_sentences_on(share, words):
    assert found(rare_word={"rarest": 0.3, "two_rarest": share}) == words


@pytest.mark.parametrize(
    ("all_words", "split", "words"),
    [
        (0.5, 0.5, ["subword merging, 50 %"]),
        (0.88, 0.7, ["subword merging, 88 %"]),
        (0.95, 0.49, []),  # looks at the current token
        (0.49, 0.95, []),  # looks at the previous token
        (0.9, None, []),
    ],
)
def test_merging_needs_words_of_one_and_of_several_subwords(all_words, split, words):
    assert found(subword_merging={"all": all_words, "split": split}) == words


@pytest.mark.parametrize(
    ("interrogative", "declarative", "words"),
    [
        (0.45, 0.03, ["question mark: 45 % in questions, 3 % in statements"]),
        (0.45, 0.35, ["question mark: 45 % in questions, 35 % in statements"]),
        (0.45, 0.351, []),  # looks at the end of any sentence
        (0.45, None, []),
        (None, 0.4, []),
    ],
)
def test_a_question_mark_counts_only_against_statements(interrogative, declarative, words):
    scores = {"interrogative": interrogative, "declarative": declarative}
    assert found(final_punctuation=scores) == words


@pytest.mark.parametrize(
    ("to_head", "to_dependent", "words"),
    [
        (0.52, 0.1, ["nsubj to its head, 52 % (baseline 35 %)"]),
        (0.45, 0.499, ["nsubj to its head, 45 % (baseline 35 %)"]),
        (0.449, 0.5, ["head to its nsubj, 50 % (baseline 40 %)"]),
        (None, 0.45, []),
    ],
)
def test_a_relation_needs_ten_points_above_its_baseline(to_head, to_dependent, words):
    accuracies = {"to_head": to_head, "to_dependent": to_dependent}
    assert found(dependencies={"nsubj": accuracies}) == words


def test_a_relation_needs_fifty_arcs_and_a_baseline():
    best = {"to_head": 1.0, "to_dependent": 1.0}
    assert found(dependencies={"vocative": best, "fixed": best, "unknown": best}) == []


@pytest.mark.parametrize(
    ("share", "words"), [(0.149, []), (0.15, ["named entities, 15 % (5 % of the words)"])]
)
def test_named_entities_need_ten_points_above_their_share_of_the_words(share, words):
    assert found(named_entity=share) == words


def test_without_annotations_nothing_is_above_them():
    bare = {"relations": None, "named_entities": None}
    accuracies = {"nsubj": {"to_head": 1.0, "to_dependent": 1.0}}
    for annotations in (None, bare):
        assert found(annotations=annotations, dependencies=accuracies, named_entity=1.0) == []


@pytest.mark.parametrize(
    ("alpha", "density", "words"),
    [(1.2, 0.9, ["dense, 90 % of the keys"]), (1.2, 0.899, []), (1.0, 1.0, [])],
)
def test_only_a_head_that_could_be_sparse_is_called_dense(alpha, density, words):
    assert found(values={"alpha": alpha}, density=density) == words


def test_one_key_is_said_of_heads_without_a_fixed_offset():
    assert found(confidence=0.9) == ["one key, 90 %"]
    assert found(confidence=0.899) == []
    assert found(confidence=0.95, positional=positional(1)) == ["next token, 97 %"]


def test_a_closed_head_does_nothing_else():
    assert found(gate=0.0, positional=positional(-1)) == ["closed"]
    assert found(gate=0.01, positional=positional(-1)) == ["previous token, 97 %"]


def test_the_strongest_role_comes_first_and_shapes_come_last():
    assert found(
        positional=positional(0, share=0.91),
        subword_merging={"all": 0.93, "split": 0.6},
        rare_word={"rarest": 0.5, "two_rarest": 0.6},
        density=0.99,
    ) == [
        "subword merging, 93 %",
        "current token, 91 %",
        "rare words, 60 %",
        "dense, 99 % of the keys",
    ]


def copied(largest):
    return {"largest": largest, "support": 1.0, "weight": 0.5 * largest}


@pytest.mark.parametrize(
    ("largest", "chance", "words"),
    [
        (0.5, 0.1, ["copies: the word that is said, 50 %"]),
        (0.49, 0.1, []),
        (0.5, 0.45, []),
        (0.9, None, ["copies: the word that is said, 90 %"]),
    ],
)
def test_a_head_copies_that_agrees_often_and_more_than_by_chance(largest, chance, words):
    head = {**NOTHING, "copy_agreement": copied(largest)}
    assert roles(head, {"annotations": None}, "cross", chance) == words


@pytest.mark.parametrize(
    ("attention", "words"),
    [
        ("encoder-self", "neighbouring tokens, 80 %"),
        ("cross", "words said around here, 80 %"),
    ],
)
def test_heads_of_relative_position_have_eight_of_ten_largest_weights_there(attention, words):
    assert found(attention, relative_position=0.8) == [words]
    assert found(attention, relative_position=0.79) == []
    assert words not in found(attention, relative_position=0.97, positional=positional(-1))
