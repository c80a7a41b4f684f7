"""What the report's page can colour and sort heads by, as the analysis itself describes it."""

from __future__ import annotations

from typing import Any

from fairseq_entmax.analysis.measures.base import Number, declared


def measures_of(analysis: dict[str, Any]) -> list[Number]:
    """The numbers that at least one head has, in the order of the analysis."""
    return [number for number in declared(analysis) if _values(analysis, number)]


def first_measure(analysis: dict[str, Any]) -> Number | None:
    """The first number that tells heads apart, else the first there is, if any."""
    present = measures_of(analysis)
    telling = (number for number in present if len(_values(analysis, number)) > 1)
    return next(telling, next(iter(present), None))


def _values(analysis: dict[str, Any], number: Number) -> set[float]:
    """The different values that heads have."""
    values = {
        number.of(head, layer)
        for model in analysis["models"]
        for layer in model["attentions"]
        for head in layer["heads"]
    }
    return values - {None}
