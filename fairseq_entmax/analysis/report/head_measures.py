"""The measures of a head that the report's page shows, each with its name and meaning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Measure:
    """One number of a head that the page can colour and sort by.

    Attributes:
        name: as ``--measure`` has it.
        title: as the page shows it.
        place: the keys that lead to it in a head of the analysis.
        meaning: one sentence.
        is_main: whether the list of heads has a column of it.
        group: what it is one of many of, such as one for each offset; empty for those that
            stand alone.
    """

    name: str
    title: str
    place: tuple[str, ...]
    meaning: str
    is_main: bool = False
    group: str = ""


# Of a layer, not of a head
DIVERSITY = "diversity"

MEASURES = (
    Measure(
        "density",
        "Density",
        ("density",),
        "share of the keys that get a weight above zero; 1 for softmax",
        is_main=True,
    ),
    Measure(
        "alpha",
        "α",
        ("alpha",),
        "the mapping's exponent: 1 is softmax, 2 is sparsemax",
        is_main=True,
    ),
    Measure(
        "entropy",
        "Entropy",
        ("entropy",),
        "of the weights of a query, in nats; 0 where one key has all",
        is_main=True,
    ),
    Measure(
        "confidence",
        "Confidence",
        ("confidence",),
        "largest weight of a query on a key that is no end of a sentence, mean over the queries",
        is_main=True,
    ),
    Measure(
        "relevance",
        "Relevance",
        ("relevance",),
        "the head's share of its layer's relevance to the predicted token, by layer-wise "
        "relevance propagation; the heads of one attention of a layer sum to 1",
        is_main=True,
    ),
    Measure(
        "gradient",
        "Gradient",
        ("gradient",),
        "the head's share of how much the loss changes with the gates of its layer's heads; the "
        "heads of one attention of a layer sum to 1",
        is_main=True,
    ),
    Measure("gate", "Gate", ("gate",), "what the head's output is multiplied by", is_main=True),
    Measure(
        "positional-share",
        "Positional share",
        ("positional", "share"),
        "share of the queries whose largest weight is at the head's one relative offset; only "
        "where the head has a positional role",
    ),
    Measure(
        "positional-confidence",
        "Positional confidence",
        ("positional", "confidence"),
        "mean weight at that offset",
    ),
    Measure(
        "rare-word",
        "Rarest word",
        ("rare_word", "rarest"),
        "how often the largest weight is on the rarest source token of the sentence",
    ),
    Measure(
        "two-rarest-words",
        "Two rarest words",
        ("rare_word", "two_rarest"),
        "the same for the two rarest source tokens",
    ),
    Measure(
        "subword-merging",
        "Subword merging",
        ("subword_merging", "all"),
        "largest weight that any subword of a word puts on the rest of it, mean over the words; a "
        "word of one subword counts by the weight on itself",
    ),
    Measure(
        "subword-merging-split",
        "Subword merging, split words",
        ("subword_merging", "split"),
        "the same over words of several subwords only",
    ),
    Measure(
        "question-mark",
        "Question mark",
        ("final_punctuation", "interrogative"),
        "mean weight on the question mark at the end of a question",
    ),
    Measure(
        "full-stop",
        "Full stop",
        ("final_punctuation", "declarative"),
        "mean weight on the full stop at the end of a statement",
    ),
    Measure(
        "pos-kl",
        "Part-of-speech divergence",
        ("pos_kl",),
        "Kullback-Leibler divergence, in nats, of the parts of speech weighted by attention from "
        "those of the sentence",
    ),
    Measure(
        "named-entity",
        "Named entities",
        ("named_entity",),
        "share of the weight that is on named entities",
    ),
    Measure(
        "diversity",
        "Diversity of the layer",
        (DIVERSITY,),
        "Jensen-Shannon divergence between the heads of the layer, the same for each of them",
    ),
)
AT_OFFSETS = (
    ("weight", "Mean weight at an offset", "mean weight at {}"),
    (
        "share",
        "Largest weight at an offset",
        "share of the queries whose largest weight is at {}, of those that have a key there",
    ),
)
DIRECTIONS = (
    (
        "to_head",
        "Dependencies: to the head",
        "how often the largest weight of a word is on the word that it depends on by the "
        "relation {}",
    ),
    (
        "to_dependent",
        "Dependencies: to the dependent",
        "how often the largest weight of a word is on the word that depends on it by the "
        "relation {}",
    ),
)


def measures_of(analysis: dict[str, Any]) -> list[Measure]:
    """The measures that at least one head has a number for, those that stand alone first."""
    known = [*MEASURES, *_at_offsets(analysis), *_of_dependencies(analysis)]
    return [measure for measure in known if _values(analysis, measure)]


def _at_offsets(analysis: dict[str, Any]) -> Iterator[Measure]:
    """Such as ``weight@-1`` and ``share@+2``."""
    for key, title, meaning in AT_OFFSETS:
        for offset in analysis["settings"]["offsets"]:
            side = "before" if offset < 0 else "after"
            position = f"the position {abs(offset)} {side} the query's"
            yield Measure(
                f"{key}@{_signed(offset)}",
                f"{title.removesuffix('an offset')}{_signed(offset).replace('-', '−')}",
                ("offsets", key, str(offset)),
                meaning.format(position if offset else "the query's own position"),
                group=title,
            )


def _signed(offset: int) -> str:
    return f"{offset:+d}" if offset else "0"


def _of_dependencies(analysis: dict[str, Any]) -> Iterator[Measure]:
    """Such as ``to-head@nsubj`` and ``to-dependent@obj``."""
    relations = (analysis["annotations"] or {}).get("relations") or {}
    for direction, group, meaning in DIRECTIONS:
        for relation in relations:
            yield Measure(
                f"{direction.replace('_', '-')}@{relation}",
                f"{relation} {direction.replace('_', ' ')}",
                ("dependencies", relation, direction),
                meaning.format(relation),
                group=group,
            )


def first_measure(analysis: dict[str, Any]) -> Measure | None:
    """The first measure that tells heads apart, else the first there is, if any."""
    present = measures_of(analysis)
    telling = (measure for measure in present if len(_values(analysis, measure)) > 1)
    return next(telling, next(iter(present), None))


def _values(analysis: dict[str, Any], measure: Measure) -> set[float]:
    """The different numbers that heads have."""
    values = {
        value_of(head, layer, measure)
        for model in analysis["models"]
        for layer in model["attentions"]
        for head in layer["heads"]
    }
    return {value for value in values if value is not None}


def value_of(head: dict[str, Any], layer: dict[str, Any], measure: Measure) -> float | None:
    """The measure of a head of an analysis; None where it has none.

    Args:
        head: its entry in the analysis.
        layer: the entry of one attention of a layer that it is in.
        measure: which.
    """
    value: Any = layer if measure.place == (DIVERSITY,) else head
    for key in measure.place:
        if value is None:
            return None
        value = value.get(key)
    return value
