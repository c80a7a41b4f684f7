"""The measures of heads, each in a file of its own, and where they are registered.

Light: help and wrong options are told without torch."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from fairseq_entmax.analysis.measures.base import ImportanceMeasure as ImportanceMeasure
from fairseq_entmax.analysis.measures.base import Measure as Measure
from fairseq_entmax.analysis.measures.base import Number as Number
from fairseq_entmax.analysis.measures.base import WeightMeasure as WeightMeasure
from fairseq_entmax.analysis.measures.confidence import Confidence
from fairseq_entmax.analysis.measures.copying import CopyAgreement, RelativePosition
from fairseq_entmax.analysis.measures.density import Density
from fairseq_entmax.analysis.measures.entropy import Diversity, Entropy
from fairseq_entmax.analysis.measures.equal_weights import EqualWeights
from fairseq_entmax.analysis.measures.head_values import Gate, HeadValues
from fairseq_entmax.analysis.measures.importance import Gradient, Relevance
from fairseq_entmax.analysis.measures.linguistic import (
    Dependencies,
    NamedEntity,
    PartOfSpeechShares,
    PartsOfSpeech,
)
from fairseq_entmax.analysis.measures.offsets import Offsets
from fairseq_entmax.analysis.measures.source_words import FinalPunctuation, QuestionWord, RareWord
from fairseq_entmax.analysis.measures.subword_merging import SubwordMerging

_MEASURES: dict[str, Measure] = {}
_RESERVED = {"head", "heads", "attention", "layer", "mapping"}


def register_measure(measure: Measure) -> None:
    """Make a measure one of those that ``analyze`` makes, writes and describes.

    Args:
        measure: its name, its fields and the names of its numbers are no other's.

    Raises:
        ValueError: one of them is, or its name is no word of letters, digits and ``_``.
    """
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", measure.name):
        raise ValueError(f"a measure is called {measure.name!r}: use letters, digits and _")
    names = {number.name for number in measure.numbers}
    names_of_fields = {measure.name, *measure.fields(), *measure.layer_fields()}
    for other in _MEASURES.values():
        fields = {other.name, *other.fields(), *other.layer_fields()}
        taken = names_of_fields & (fields | _RESERVED) or names & {n.name for n in other.numbers}
        if taken:
            raise ValueError(
                f"the measure {measure.name} calls something {sorted(taken)[0]!r}, as the measure "
                f"{other.name} does: choose another name"
            )
    _MEASURES[measure.name] = measure


def measures() -> list[Measure]:
    """All of them, in the order in which the report has their columns."""
    return list(_MEASURES.values())


def importance_measures() -> list[ImportanceMeasure]:
    """Those of them that take passes of their own."""
    return [measure for measure in measures() if isinstance(measure, ImportanceMeasure)]


def optional_names() -> tuple[str, ...]:
    """Those that ``--measures`` chooses from."""
    return tuple(measure.name for measure in measures() if measure.is_optional)


def numbers_of(analysis: dict[str, Any]) -> list[Number]:
    """What there is to show of an analysis that was made here; those that stand alone first."""
    taken = {number.name for measure in measures() for number in measure.numbers}
    shown = [number for measure in measures() for number in measure.shown(analysis)]
    for place, number in enumerate(shown):
        # A mapping may call its values what it likes
        if number.place[0] == "values" and number.name in taken:
            shown[place] = replace(number, name=f"mapping-{number.name}")
    return sorted(shown, key=lambda number: bool(number.group))


for _measure in (
    *(Density(), HeadValues(), Entropy(), Confidence(), Relevance(), Gradient(), Gate()),
    *(EqualWeights(), Offsets(), RelativePosition(), CopyAgreement()),
    *(RareWord(), SubwordMerging(), FinalPunctuation(), QuestionWord()),
    *(Dependencies(), PartsOfSpeech(), PartOfSpeechShares(), NamedEntity(), Diversity()),
):
    register_measure(_measure)
