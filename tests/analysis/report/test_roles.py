from typing import Any

import pytest

from fairseq_entmax.analysis.report.roles import roles

NOTHING: dict[str, Any] = {
    "head": 0,
    "values": {"alpha": 1.5},
    "density": 0.4,
    "confidence": 0.3,
    **dict.fromkeys(("offsets", "positional", "rare_word", "subword_merging", "gate")),
    **dict.fromkeys(("final_punctuation", "dependencies", "named_entity")),
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
    assert found(annotations=None, density=None, confidence=None) == []


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


def merging(all_words, split):
    return {"subword_merging": {"all": all_words, "split": split}}


def marks(interrogative, declarative):
    return {"final_punctuation": {"interrogative": interrogative, "declarative": declarative}}


def relation(to_head, to_dependent, name="nsubj"):
    return {"dependencies": {name: {"to_head": to_head, "to_dependent": to_dependent}}}


# The measures of a head of encoder-self, and its roles: from either side of each border
@pytest.mark.parametrize(
    ("measures", "words"),
    [
        ({"offsets": {"share": {"-1": 0.5, "0": 0.2}}}, ["often previous token, 50 %"]),
        ({"offsets": {"share": {"-1": 0.499, "0": None}}}, []),
        ({"offsets": {"share": {"-1": None}}}, []),
        ({"offsets": {"share": {"0": 0.3, "2": 0.89}}}, ["often token 2 ahead, 89 %"]),
        (
            {"offsets": {"share": {"-1": 0.97}}, "positional": positional(-1)},
            ["previous token, 97 %"],
        ),
        ({"rare_word": {"rarest": 0.3, "two_rarest": 0.499}}, []),
        ({"rare_word": {"rarest": 0.3, "two_rarest": 0.5}}, ["rare words, 50 %"]),
        (merging(0.5, 0.5), ["subword merging, 50 %"]),
        (merging(0.88, 0.7), ["subword merging, 88 %"]),
        (merging(0.95, 0.49), []),  # looks at the current token
        (merging(0.49, 0.95), []),  # looks at the previous token
        (merging(0.9, None), []),
        (marks(0.45, 0.35), ["question mark: 45 % in questions, 35 % in statements"]),
        (marks(0.45, 0.351), []),  # looks at the end of any sentence
        (marks(0.45, None), []),
        (marks(None, 0.4), []),
        (relation(0.45, 0.499), ["nsubj to its head, 45 % (baseline 35 %)"]),
        (relation(0.449, 0.5), ["head to its nsubj, 50 % (baseline 40 %)"]),
        (relation(None, 0.45), []),
        (relation(1.0, 1.0, "vocative"), []),  # of fewer than fifty arcs
        (relation(1.0, 1.0, "unknown"), []),
        ({"named_entity": 0.149}, []),
        ({"named_entity": 0.15}, ["named entities, 15 % (5 % of the words)"]),
        ({"values": {"alpha": 1.2}, "density": 0.9}, ["dense, 90 % of the keys"]),
        ({"values": {"alpha": 1.2}, "density": 0.899}, []),
        ({"values": {"alpha": 1.0}, "density": 1.0}, []),
        ({"confidence": 0.9}, ["one key, 90 %"]),
        ({"confidence": 0.899}, []),
        ({"confidence": 0.95, "positional": positional(1)}, ["next token, 97 %"]),
        ({"gate": 0.0, "positional": positional(-1)}, ["closed"]),
        ({"gate": 0.01, "positional": positional(-1)}, ["previous token, 97 %"]),
        ({"relative_position": 0.8}, ["neighbouring tokens, 80 %"]),
        ({"relative_position": 0.79}, []),
        ({"relative_position": 0.97, "positional": positional(-1)}, ["previous token, 97 %"]),
    ],
)
def test_a_head_has_the_roles_that_its_measures_reach(measures, words):
    assert found(**measures) == words


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
    head = {**NOTHING, "copy_agreement": {"largest": largest, "support": 1.0, "weight": 0.1}}
    assert roles(head, {"annotations": None}, "cross", chance) == words
    assert found("cross", relative_position=0.8) == ["words said around here, 80 %"]
