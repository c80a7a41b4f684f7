"""The roles of a head in words, derived from its measures.

A head has a role if a measure is clearly above what chance or position alone would give;
:func:`explanations` gives the rules in numbers, after Voita et al. 2019, sections 5.1 to 5.3, and
Baan et al. 2019, section 5.3. With 50 arcs or more, the standard error of an accuracy is at most 7
points. Subword merging needs both of its shares: looking at the current token is enough for a high
share over all words, and looking at the previous token for one over words of several subwords."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairseq_entmax.analysis.measures.head_values import may_leave_out
from fairseq_entmax.attentions import CROSS

CLOSED = "closed"
COPY_HEAD = "copy head"
OFTEN = 0.5
RARE_WORDS = 0.5
RELATIVE_POSITION = 0.8
COPIES = 0.5
SUBWORD_MERGING = 0.5
ABOVE_BASELINE = 0.1
FEWEST_ARCS = 50
FEWEST_QUESTIONS = 10
NEARLY_ALL = 0.9


def explanations(settings: dict[str, Any]) -> list[tuple[str, str]]:
    """The words for roles, each with the condition for it in numbers."""
    positional = _percent(settings["positional_share"])
    points, nearly_all = f"{100 * ABOVE_BASELINE:.0f} points", _percent(NEARLY_ALL)
    texts = {
        "previous token, 2 tokens ahead, same position, …": "the largest weight is at this one offset "
        f"for at least {positional} of the queries that have a token there, and for more than half of "
        "all queries (Voita et al. 2019)",
        "often …": f"the same for more than {_percent(OFTEN)} of all queries, but for less than "
        f"{positional} of those that have a token there",
        "neighbouring tokens, words near the current one": "the largest weight is on a neighbour for "
        f"at least {_percent(RELATIVE_POSITION)} of the queries, and no single offset makes the head positional",
        "rare words": f"in at least {_percent(RARE_WORDS)} of the sentences with a rare word, the "
        "largest weight is on one of the two rarest words; rare words are not among the "
        f"{settings['rare_rank']} most frequent ones of the training data",
        "copies": f"in at least {_percent(COPIES)} of the steps that predict a word of the source, the "
        f"largest weight is on this word, at least {points} more often than by chance",
        "subword merging": f"at least {_percent(SUBWORD_MERGING)} of the weight stays inside the word, "
        "over all words and over those of several subwords",
        "question mark, relations, named entities": f"at least {points} above the share in statements "
        f"(data with at least {FEWEST_QUESTIONS} questions), above the most frequent offset (relations "
        f"of at least {FEWEST_ARCS} arcs), or above their share of the words",
        "dense": f"at least {nearly_all} of the keys have a weight above 0, though the mapping allows "
        "weights of exactly 0",
        "one key": f"the mean of the largest weight (confidence) is at least {nearly_all}, and the head "
        "is not positional",
        "closed": "the gate is 0: the head does nothing",
    }
    return list(texts.items())


# The strength of a role, from 0 to 1, and its words
_Role = tuple[float, str]


def roles(
    head: dict[str, Any], analysis: dict[str, Any], attention: str, copy_chance: float | None = None
) -> list[str]:
    """The roles of one head, the strongest first; roles of shape follow the others.

    ``copy_chance``: how often a head of its layer looks at the word written by chance alone. On the
    user's own sentences only ``closed`` is given: the few queries do not show any other role."""
    if head["gate"] == 0:
        return [CLOSED]
    if analysis.get("data", {}).get("own"):
        return []
    roles = [
        *_positional(head, attention),
        *_neighbours(head, attention),
        *_of_tokens(head, copy_chance),
        *_marks(head, analysis["data"]),
        *_relations(head, analysis),
        *_entities(head, analysis),
    ]
    return [words for _, words in [*_strongest_first(roles), *_strongest_first(_shape(head))]]


def functions(head: dict[str, Any], analysis: dict[str, Any]) -> list[str]:
    """Which of the functions in Voita et al. 2019, section 5, an encoder head has."""
    has = {
        "positional": (head["positional"] or {}).get("offset") in (-1, 1),
        "syntactic": any(_relations(head, analysis)),
        "rare words": ((head["rare_word"] or {}).get("two_rarest") or 0.0) >= RARE_WORDS,
    }
    return [name for name, is_one in has.items() if is_one]


def _strongest_first(roles: Any) -> list[_Role]:
    return sorted(roles, key=lambda role: -role[0])


def _positional(head: dict[str, Any], attention: str) -> Iterator[_Role]:
    positional, offsets = head["positional"], head["offsets"] or {"share": {}}
    if positional:
        share, offset = positional["share"], positional["offset"]
    else:
        # Not by the share, which may be that of the few queries that have a token there
        found = [name for name in offsets["share"] if (offsets["maximum"][name] or 0) > OFTEN]
        if not found:
            return
        share, offset = offsets["share"][found[0]], int(found[0])
    # Source and target share positions, but no tokens
    what, here = ("position", "same") if attention == CROSS else ("token", "current")
    place = f"{abs(offset)} {what}s {'back' if offset < 0 else 'ahead'}"
    if abs(offset) <= 1:
        place = f"{('previous', here, 'next')[offset + 1]} {what}"
    yield share, f"{'' if positional else 'often '}{place}, {_percent(share)}"


def _neighbours(head: dict[str, Any], attention: str) -> Iterator[_Role]:
    share = head.get("relative_position")
    if share is not None and share >= RELATIVE_POSITION and not head["positional"]:
        where = "words near the current one" if attention == CROSS else "neighbouring tokens"
        yield share, f"{where}, {_percent(share)}"


def _of_tokens(head: dict[str, Any], chance: float | None) -> Iterator[_Role]:
    rare = (head["rare_word"] or {}).get("two_rarest")
    if rare is not None and rare >= RARE_WORDS:
        yield rare, f"rare words, {_percent(rare)}"

    copied = (head.get("copy_agreement") or {}).get("largest")
    if copied is not None and copied >= COPIES and _is_above(copied, chance or 0.0):
        yield copied, f"copies: the predicted word, {_percent(copied)}"

    merging = head["subword_merging"] or {}
    scores = [merging.get("all"), merging.get("split")]
    if all(score is not None and score >= SUBWORD_MERGING for score in scores):
        yield merging["all"], f"subword merging, {_percent(merging['all'])}"


def _marks(head: dict[str, Any], data: dict[str, Any]) -> Iterator[_Role]:
    count = data["interrogative_sentences"] or 0
    if count < FEWEST_QUESTIONS:
        return
    marks = {"": head["final_punctuation"], " from question words": head.get("question_word")}
    for where, mark in marks.items():
        questions, statements = (mark or {}).get("interrogative"), (mark or {}).get("declarative")
        if questions is not None and statements is not None and _is_above(questions, statements):
            shares = (
                f"{_percent(questions)} in {count} questions, {_percent(statements)} in statements"
            )
            yield questions, f"question mark{where}: {shares}"


def _relations(head: dict[str, Any], analysis: dict[str, Any]) -> Iterator[_Role]:
    relations = (analysis["annotations"] or {}).get("relations") or {}
    for relation, accuracies in (head["dependencies"] or {}).items():
        known = relations.get(relation)
        if known is None or known["count"] < FEWEST_ARCS:
            continue
        for direction, words in (
            ("to_head", f"{relation} to its head"),
            ("to_dependent", f"head to its {relation}"),
        ):
            accuracy, baseline = accuracies[direction], known[direction]["baseline"]
            if accuracy is not None and baseline is not None and _is_above(accuracy, baseline):
                yield (accuracy, f"{words}, {_percent(accuracy)} (baseline {_percent(baseline)})")


def _entities(head: dict[str, Any], analysis: dict[str, Any]) -> Iterator[_Role]:
    expected = (analysis["annotations"] or {}).get("named_entities")
    entities = head["named_entity"]
    if entities is not None and expected is not None and _is_above(entities, expected):
        yield entities, f"named entities, {_percent(entities)} ({_percent(expected)} of the words)"


def _shape(head: dict[str, Any]) -> Iterator[_Role]:
    density, confidence = head["density"], head["confidence"]
    if may_leave_out(head) and density is not None and density >= NEARLY_ALL:
        yield density, f"dense, {_percent(density)} of the keys"
    if not head["positional"] and confidence is not None and confidence >= NEARLY_ALL:
        yield confidence, f"one key, {_percent(confidence)}"


def _is_above(value: float, baseline: float) -> bool:
    # A value rounded in the document may miss the border by its last digit
    return value - baseline >= ABOVE_BASELINE - 1e-6


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
