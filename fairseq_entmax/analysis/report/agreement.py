"""How well cheap measures of heads agree with what a model loses without each head.

Relevance, gradient and confidence are compared with the results of ``ablate`` by Spearman's
correlation over heads. As models have few heads, it has an interval: by Fisher's transformation,
with the standard error of Bonett and Wright 2000, *Sample size requirements for estimating
Pearson, Kendall and Spearman correlations*, equation 3."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fairseq_entmax.analysis.head_order import spearman
from fairseq_entmax.analysis.report.ablation_table import harm
from fairseq_entmax.attentions import ATTENTIONS

COMPARED = ("relevance", "gradient", "confidence")
ALL, WITHIN = "all", "within layers"
# With four heads, a perfect order, or its reverse, has a chance of one in twelve
LEAST_HEADS = 5
# Quantile of the normal distribution for an interval of 95 %
_NORMAL = 1.959964


class Correlation(NamedTuple):
    """The correlation of a measure with the harm of removals by one score; above 0 if heads with a
    higher measure are worth more.

    ``heads``: all, one attention, or within layers (the mean over layers of three heads or more).
    ``low`` to ``high`` is the 95 % interval; both are None for few heads and for means."""

    model: str
    score: str
    measure: str
    heads: str
    number: int
    value: float
    low: float | None = None
    high: float | None = None


# Attention, layer, the head's measure, and how much worse the model is without the head
_Point = tuple[str, int, float, float]


def correlations(analysis: dict[str, Any]) -> list[Correlation]:
    """Correlate every measure with every score, over the heads that were removed alone."""
    return [
        Correlation(model["name"], score, measure, *found)
        for model in analysis["models"]
        for score in _scores(model)
        for measure in COMPARED
        for found in _of_groups(_points(model, measure, score))
    ]


def _scores(model: dict[str, Any]) -> list[str]:
    heads = [head for layer in model["attentions"] for head in layer["heads"]]
    return list(dict.fromkeys(score for head in heads for score in head.get("ablation", ())))


def _points(model: dict[str, Any], measure: str, score: str) -> list[_Point]:
    return [
        (layer["attention"], layer["layer"], head[measure], harm(head, score))
        for layer in model["attentions"]
        for head in layer["heads"]
        if score in head.get("ablation", ()) and head.get(measure) is not None
    ]


def _of_groups(points: Sequence[_Point]) -> Iterator[tuple[Any, ...]]:
    """Correlate over all heads, over each attention if there are several, and within layers."""
    groups = {ALL: list(points)}
    names = [name for name in ATTENTIONS if any(point[0] == name for point in points)]
    for name in names if len(names) > 1 else ():
        groups[name] = [point for point in points if point[0] == name]
    for heads, members in groups.items():
        value = _spearman(members)
        if value is not None:
            yield heads, len(members), value, *interval(value, len(members))
    layers: dict[tuple[str, int], list[_Point]] = {}
    for point in points:
        layers.setdefault(point[:2], []).append(point)
    inner = [(len(members), _spearman(members)) for members in layers.values()]
    known = [(number, value) for number, value in inner if value is not None]
    if len(known) > 1:
        numbers, values = zip(*known, strict=True)
        yield WITHIN, sum(numbers), sum(values) / len(values)


def _spearman(points: Sequence[_Point]) -> float | None:
    return spearman([point[2] for point in points], [point[3] for point in points])


def interval(value: float, number: int) -> tuple[float | None, float | None]:
    """The ends of the 95 % interval of a rank correlation over ``number`` heads."""
    if number < LEAST_HEADS:
        return None, None
    # A perfect order of few heads is no certainty, so it counts as the next lower correlation
    most = 1 - 12 / (number * (number**2 - 1))
    middle = math.atanh(max(-most, min(most, value)))
    error = math.sqrt((1 + value**2 / 2) / (number - 3))
    low, high = (math.tanh(middle + side * _NORMAL * error) for side in (-1, 1))
    return min(low, value), max(high, value)
