"""How far what is cheap to know of heads goes with what a model loses without them.

Relevance, gradient and confidence are numbers of a whole model; ``ablate`` removes each head and
scores what is left. Spearman's correlation of both over heads says whether one ranks heads as the
other does, here with an interval, since models have few heads: by Fisher's transformation, with
the standard error of Bonett and Wright 2000, *Sample size requirements for estimating Pearson,
Kendall and Spearman correlations*, equation 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from fairseq_entmax.analysis.report.ablation_table import Ablation
from fairseq_entmax.analysis.start_and_end import spearman
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.head_names import Head

COMPARED = ("relevance", "gradient", "confidence")
ALL, WITHIN = "all", "within layers"
# Of all scores the loss alone gets larger where a model gets worse
LOSS = "loss"
# Of four heads even a perfect order comes by chance once in twelve times
LEAST_HEADS = 5
# The interval that leaves out one in twenty
_NORMAL = 1.959964
# From where on a measure is said to rank heads as their removal does, or to do so in part
CLOSE, PARTLY = 0.7, 0.4


class Correlation(NamedTuple):
    """One measure against the harm that one score shows.

    Attributes:
        model: its name.
        score: such as ``loss``.
        measure: of :data:`COMPARED`.
        heads: ``all``, one attention, or ``within layers``: the mean over those layers of each
            attention that have three heads or more.
        number: of heads.
        value: from -1 to 1; above 0 where the model loses more without heads that have more.
        low, high: the interval of 95 %; None of fewer than five heads, and of means.
        p: of a correlation this far from 0 without any, of two sides; None likewise.
    """

    model: str
    score: str
    measure: str
    heads: str
    number: int
    value: float
    low: float | None = None
    high: float | None = None
    p: float | None = None


def harm(score: str, change: float) -> float:
    """How much worse a model is without a head, from the change of a score."""
    return change if score == LOSS else -change


def correlations(analysis: dict[str, Any], ablations: Sequence[Ablation]) -> list[Correlation]:
    """Of every measure with every score, over heads that were removed alone.

    Args:
        analysis: a valid document.
        ablations: of its models.
    """
    found = []
    for ablation in ablations:
        (model,) = (one for one in analysis["models"] if one["name"] == ablation.model)
        for score, removed in ablation.scores.items():
            for measure in COMPARED:
                pairs = _pairs(model, measure, score, removed)
                for heads, number, value in _values(pairs):
                    low, high, p = (
                        (None, None, None) if heads == WITHIN else interval(value, number)
                    )
                    found.append(
                        Correlation(
                            ablation.model, score, measure, heads, number, value, low, high, p
                        )
                    )
    return found


def interval(value: float, number: int) -> tuple[float | None, float | None, float | None]:
    """The ends of the interval of 95 % of a rank correlation over so many heads, and p."""
    if number < LEAST_HEADS:
        return None, None, None
    # A perfect order of so few heads is no certainty: taken for the next one below it
    most = 1 - 12 / (number * (number**2 - 1))
    middle = math.atanh(max(-most, min(most, value)))
    error = math.sqrt((1 + value**2 / 2) / (number - 3))
    low, high = (math.tanh(middle + side * _NORMAL * error) for side in (-1, 1))
    low, high = min(low, value), max(high, value)
    # Without any correlation the error is another
    p = math.erfc(abs(middle) * math.sqrt((number - 3) / 2))
    return low, high, p


_Pair = tuple[Head, float, float]


def _pairs(model: dict[str, Any], measure: str, score: str, removed: Any) -> list[_Pair]:
    pairs = []
    for layer in model["attentions"]:
        for head in layer["heads"]:
            place = Head(layer["attention"], layer["layer"], head["head"])
            if place in removed and head.get(measure) is not None:
                worse = harm(score, removed[place]["change"])
                pairs.append((place, head[measure], worse))
    return pairs


def _values(pairs: Sequence[_Pair]) -> list[tuple[str, int, float]]:
    """Of all heads, of each attention where there are several, and within layers."""
    groups: dict[str, list[_Pair]] = {ALL: list(pairs)}
    names = [name for name in ATTENTIONS if any(pair[0].attention == name for pair in pairs)]
    for name in names if len(names) > 1 else ():
        groups[name] = [pair for pair in pairs if pair[0].attention == name]
    known = [(heads, len(own), _spearman(own)) for heads, own in groups.items()]
    layers: dict[tuple[str, int], list[_Pair]] = {}
    for pair in pairs:
        layers.setdefault((pair[0].attention, pair[0].layer), []).append(pair)
    inner = [(len(own), _spearman(own)) for own in layers.values()]
    own_values = [(number, value) for number, value in inner if value is not None]
    if len(own_values) > 1:
        mean = sum(value for _, value in own_values) / len(own_values)
        known.append((WITHIN, sum(number for number, _ in own_values), mean))
    return [(heads, number, value) for heads, number, value in known if value is not None]


def _spearman(pairs: Sequence[_Pair]) -> float | None:
    return spearman([pair[1] for pair in pairs], [pair[2] for pair in pairs])


def in_words(found: Sequence[Correlation]) -> list[str]:
    """A sentence for each model and score: what of it each measure tells, and whether relevance may
    be read alone."""
    sentences = []
    for model, score in dict.fromkeys((one.model, one.score) for one in found):
        own = [one for one in found if (one.model, one.score, one.heads) == (model, score, ALL)]
        if not own:
            continue
        parts = [f"{one.measure} {_verdict(one)} ({number_text(one)})" for one in own]
        inner = [one for one in found if one[:2] == (model, score) and one.heads == WITHIN]
        within = ", ".join(f"{one.measure} {number_text(one)}" for one in inner)
        sentences.append(
            f"{model}, {own[0].number} heads removed one at a time, ranked by how much worse the "
            f"{score} is without each: {'; '.join(parts)}. "
            + (f"Among heads of one layer: {within}. " if within else "")
            + _warning(own, inner)
        )
    return [sentence.strip() for sentence in sentences]


def number_text(one: Correlation) -> str:
    """Such as ``0.23, from −0.19 to 0.58``."""
    text = f"{one.value:.2f}"
    if one.low is not None:
        text += f", 95 % from {one.low:.2f} to {one.high:.2f}"
    return text.replace("-", "−")


def _verdict(one: Correlation) -> str:
    if one.low is None or one.high is None or one.low <= 0 <= one.high:
        return "cannot be told from a ranking by chance"
    if one.high < 0:
        return "ranks them the other way round"
    if one.value >= CLOSE:
        return "ranks them much like this"
    return "does so in part" if one.value >= PARTLY else "does so weakly"


def _warning(own: Sequence[Correlation], inner: Sequence[Correlation]) -> str:
    """What of relevance is not to be concluded, as far as the numbers say so.

    Args:
        own: of all heads, a measure each.
        inner: within layers likewise.
    """
    relevance = next((one for one in own if one.measure == COMPARED[0]), None)
    if relevance is None:
        return ""
    within = {one.measure: one.value for one in inner}
    better = [
        one
        for one in own
        if _is_above(one, relevance)
        and within.get(one.measure, 1.0) > max(0.0, within.get(relevance.measure, 0.0))
    ]
    best = max(better, key=lambda one: one.value, default=None)
    beside = "" if best is None else f"; {best.measure} says more of it here ({best.value:.2f})"
    if relevance.value < PARTLY or (relevance.low or 0) <= 0:
        return f"Relevance alone misleads here{beside}.".replace("-", "−")
    if relevance.value < CLOSE:
        return f"Relevance alone does not say here what a head is worth{beside}.".replace("-", "−")
    if (relevance.low or 0) < PARTLY:
        return "Of so few heads it is not certain that relevance says what one is worth."
    return "Relevance may stand here for what a head is worth."


def _is_above(one: Correlation, other: Correlation) -> bool:
    """Whether chance seldom puts a correlation so far above another.

    Of the difference of both by Fisher's transformation, as if each were of heads of its own: the
    two are of the same heads, which mostly makes the difference surer than this says.
    """
    if min(one.number, other.number) < 4 or not one.low or one.low <= 0:
        return False
    if max(abs(one.value), abs(other.value)) >= 1:
        return other.high is not None and one.low > other.high
    errors = [(1 + each.value**2 / 2) / (each.number - 3) for each in (one, other)]
    difference = math.atanh(one.value) - math.atanh(other.value)
    return difference > _NORMAL * math.sqrt(sum(errors))
