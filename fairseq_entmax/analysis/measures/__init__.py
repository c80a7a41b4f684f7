"""The measures of heads, and their registry.

Importing this does not import torch, so that help and errors in options come fast."""

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
    """Register a measure, so that ``analyze`` computes, writes and describes it.

    Args:
        measure: its name, its fields and the names of its numbers must not be another measure's.

    Raises:
        ValueError: one of them is, or the name is not letters, digits and ``_`` after a letter.
    """
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", measure.name):
        raise ValueError(f"a measure is named {measure.name!r}: use letters, digits and _")
    names = {number.name for number in measure.numbers}
    names_of_fields = {measure.name, *measure.fields(), *measure.layer_fields()}
    for other in _MEASURES.values():
        fields = {other.name, *other.fields(), *other.layer_fields()}
        taken = names_of_fields & (fields | _RESERVED) or names & {n.name for n in other.numbers}
        if taken:
            raise ValueError(
                f"the measure {measure.name} uses the name {sorted(taken)[0]!r}, as the measure "
                f"{other.name} does: choose another name"
            )
    _MEASURES[measure.name] = measure


def measures() -> list[Measure]:
    """Return all measures, in the order of their columns in the report."""
    return list(_MEASURES.values())


def importance_measures() -> list[ImportanceMeasure]:
    """Return the measures that need passes of their own."""
    return [measure for measure in measures() if isinstance(measure, ImportanceMeasure)]


def optional_names() -> tuple[str, ...]:
    """Return the names that ``--measures`` chooses from."""
    return tuple(measure.name for measure in measures() if measure.is_optional)


def numbers_of(analysis: dict[str, Any]) -> list[Number]:
    """Return the numbers to show of a new analysis; those that stand alone come first."""
    taken = {number.name for measure in measures() for number in measure.numbers}
    shown = [number for measure in measures() for number in measure.shown(analysis)]
    for place, number in enumerate(shown):
        # A mapping may give its values any name
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
