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
# Correlations from which a measure is said to rank heads as removal does, or to do so in part
CLOSE, PARTLY = 0.7, 0.4


class Correlation(NamedTuple):
    """The correlation of a measure with the harm of removals by one score; above 0 if heads with a
    higher measure are worth more.

    ``heads``: all, one attention, or within layers (the mean over layers of three heads or more).
    ``low`` to ``high`` is the 95 % interval; it and ``p`` are None for few heads and for means."""

    model: str
    score: str
    measure: str
    heads: str
    number: int
    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


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


def interval(value: float, number: int) -> tuple[float | None, float | None, float | None]:
    """The ends of the 95 % interval of a rank correlation over ``number`` heads, and p."""
    if number < LEAST_HEADS:
        return None, None, None
    # A perfect order of few heads is no certainty, so it counts as the next lower correlation
    most = 1 - 12 / (number * (number**2 - 1))
    middle = math.atanh(max(-most, min(most, value)))
    error = math.sqrt((1 + value**2 / 2) / (number - 3))
    low, high = (math.tanh(middle + side * _NORMAL * error) for side in (-1, 1))
    # p uses the standard error that holds if there is no correlation
    p = math.erfc(abs(middle) * math.sqrt((number - 3) / 2))
    return min(low, value), max(high, value), p


def in_words(found: Sequence[Correlation]) -> list[str]:
    """A sentence for each model and score: how well each measure agrees with it, and whether
    relevance alone can be trusted."""
    sentences = []
    for model, score in dict.fromkeys((one.model, one.score) for one in found):
        every = [one for one in found if (one.model, one.score) == (model, score)]
        over_all = [one for one in every if one.heads == ALL]
        inner = [one for one in every if one.heads == WITHIN]
        if not over_all:
            continue
        parts = "; ".join(f"{one.measure} {_verdict(one)} ({_text(one)})" for one in over_all)
        within = ", ".join(f"{one.measure} {_text(one)}" for one in inner)
        sentences.append(
            f"{model}: {over_all[0].number} heads were removed one at a time and ranked by how much worse "
            f"the {score} is without each. Compared with this ranking: {parts}."
            + (f" Within layers: {within}." if within else "")
            + _warning(over_all)
        )
    return sentences


def _text(one: Correlation) -> str:
    """Format a correlation, such as ``0.23, 95 % interval −0.19 to 0.58``."""
    text = f"{one.value:.2f}"
    if one.low is not None:
        text += f", 95 % interval {one.low:.2f} to {one.high:.2f}"
    return text.replace("-", "−")


def _verdict(one: Correlation) -> str:
    if one.low is None or one.high is None or one.low <= 0 <= one.high:
        return "cannot be told from chance"
    if one.high < 0:
        return "ranks heads in the opposite order"
    if one.value >= CLOSE:
        return "agrees well"
    return "agrees in part" if one.value >= PARTLY else "agrees weakly"


def _warning(correlations: Sequence[Correlation]) -> str:
    """How far relevance alone tells what heads are worth."""
    for one in correlations:
        if one.measure != COMPARED[0]:
            continue
        low = one.low or 0
        if one.value < PARTLY or (one.value < CLOSE and low <= 0):
            return " Here, relevance alone is misleading."
        if one.value < CLOSE:
            return " Here, relevance alone does not show what a head is worth."
        if low < PARTLY:
            return " With so few heads, it is unclear whether relevance shows what one is worth."
        return " Here, relevance is a fair measure of what a head is worth."
    return ""
