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


def relation_of(count, *baselines):
    sides = [{"baseline": one, "offset": 1} for one in baselines]
    return {"count": count, "to_head": sides[0], "to_dependent": sides[1]}


RELATIONS = {"nsubj": relation_of(50, 0.35, 0.4), "vocative": relation_of(49, 0.1, 0.1)}
ANNOTATIONS = {"relations": RELATIONS, "named_entities": 0.05}


def found(questions=10, **measures):
    analysis = {"annotations": ANNOTATIONS, "data": {"interrogative_sentences": questions}}
    return roles({**NOTHING, **measures}, analysis, "encoder-self")


def positional(offset, share=0.97):
    return {"offset": offset, "share": share, "confidence": 0.9}


def looking(offset, share, maximum):
    offsets = {"share": {"0": None, str(offset): share}}
    return {"offsets": {**offsets, "maximum": {"above": 0.9, "0": 0.0, str(offset): maximum}}}


def merging(all_words, split):
    return {"subword_merging": {"all": all_words, "split": split}}


def marks(interrogative, declarative):
    return {"final_punctuation": {"interrogative": interrogative, "declarative": declarative}}


def copying(largest):
    return {"copy_agreement": {"largest": largest, "support": 1.0, "weight": 0.1}}


def relation(to_head, to_dependent, name="nsubj"):
    return {"dependencies": {name: {"to_head": to_head, "to_dependent": to_dependent}}}


# The measures of an encoder-self head and its roles, from both sides of each threshold
@pytest.mark.parametrize(
    ("measures", "words"),
    [
        ({}, []),
        (looking(-1, 0.53, 0.51), ["often previous token, 53 %"]),
        (looking(-1, 0.52, 0.5), []),
        (looking(-4, 1.0, 0.1), []),  # few queries have a token there
        (looking(2, 0.89, 0.7), ["often 2 tokens ahead, 89 %"]),
        ({"rare_word": {"rarest": 0.3, "two_rarest": 0.499}}, []),
        ({"rare_word": {"rarest": 0.3, "two_rarest": 0.5}}, ["rare words, 50 %"]),
        (merging(0.5, 0.5), ["subword merging, 50 %"]),
        (merging(0.88, 0.7), ["subword merging, 88 %"]),
        (merging(0.95, 0.49), []),  # attends to the current token
        (merging(0.49, 0.95), []),  # attends to the previous token
        (marks(0.45, 0.35), ["question mark: 45 % in 10 questions, 35 % in statements"]),
        (marks(0.45, 0.351), []),  # attends to the end of any sentence
        (marks(0.45, None), []),
        (relation(0.45, 0.499), ["nsubj to its head, 45 % (baseline 35 %)"]),
        (relation(0.449, 0.5), ["head to its nsubj, 50 % (baseline 40 %)"]),
        (relation(None, 0.45), []),
        (relation(1.0, 1.0, "vocative"), []),  # fewer than fifty arcs
        ({"named_entity": 0.149}, []),
        ({"named_entity": 0.15}, ["named entities, 15 % (5 % of the words)"]),
        ({"values": {"alpha": 1.2}, "density": 0.9}, ["dense, 90 % of the keys"]),
        ({"values": {"alpha": 1.2}, "density": 0.899}, []),
        ({"values": {"alpha": 1.0}, "density": 1.0}, []),
        ({"confidence": 0.9}, ["one key, 90 %"]),
        ({"confidence": 0.899}, []),
        ({"confidence": 0.95, "positional": positional(1)}, ["next token, 97 %"]),
        ({"gate": 0.0, "positional": positional(-1)}, ["closed"]),
        ({**looking(0, 1, 1), "gate": 0.1, "positional": positional(-1)}, ["previous token, 97 %"]),
        ({"relative_position": 0.8}, ["neighbouring tokens, 80 %"]),
        ({"relative_position": 0.79}, []),
    ],
)
def test_a_head_has_the_roles_whose_thresholds_its_measures_reach(measures, words):
    assert found(**measures) == words
    # For the user's own sentences, the only role is a closed gate
    own = {"annotations": ANNOTATIONS, "data": {"own": {"words": True}}}
    closed = [word for word in words if word == "closed"]
    assert roles({**NOTHING, **measures}, own, "encoder-self") == closed


@pytest.mark.parametrize(
    ("attention", "measures", "chance", "words"),
    [
        ("encoder-self", {"positional": positional(0)}, None, ["current token, 97 %"]),
        ("decoder-self", {"positional": positional(-3)}, None, ["3 tokens back, 97 %"]),
        ("cross", {"positional": positional(0)}, None, ["same position, 97 %"]),
        ("cross", {"positional": positional(-1)}, None, ["previous position, 97 %"]),
        ("cross", {"positional": positional(4)}, None, ["4 positions ahead, 97 %"]),
        ("cross", {"relative_position": 0.8}, None, ["words near the current one, 80 %"]),
        ("cross", copying(0.5), 0.1, ["copies: the predicted word, 50 %"]),
        ("cross", copying(0.49), 0.1, []),
        ("cross", copying(0.5), 0.45, []),  # little more than by chance
        ("cross", copying(0.9), None, ["copies: the predicted word, 90 %"]),
    ],
)
def test_roles_are_worded_for_each_attention(attention, measures, chance, words):
    analysis = {"annotations": None, "data": {"interrogative_sentences": None}}
    assert roles({**NOTHING, **measures}, analysis, attention, chance) == words


def test_few_questions_give_no_role():
    asked = {"question_word": {"interrogative": 0.9, "declarative": 0.1}}
    words = "question mark from question words: 90 % in 10 questions, 10 % in statements"
    assert (found(**asked), found(questions=9, **asked)) == ([words], [])


def test_the_strongest_role_comes_first_and_shapes_come_last():
    words = ["subword merging, 93 %", "current token, 91 %", "rare words, 60 %"]
    assert found(
        positional=positional(0, share=0.91),
        subword_merging={"all": 0.93, "split": 0.6},
        rare_word={"rarest": 0.5, "two_rarest": 0.6},
        density=0.99,
    ) == [*words, "dense, 99 % of the keys"]
