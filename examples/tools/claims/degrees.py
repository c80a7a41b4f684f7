"""What sparse attention costs against softmax, over all settings, and what a rise of alpha changes.

The measure is the loss on the test set, without label smoothing, in bits a token: trainings that
differ by their seed differ in it by a tenth of what they differ by in BLEU. Seeds are those of a
setting, a corpus and a size; their differences are pooled with the variance within settings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy
from scipy import stats

from claims import words
from claims.measures import (
    FIXED,
    LEARNED,
    SOFTMAX,
    each,
    gap,
    mean_of,
    of_models,
    require_equal_updates,
)
from claims.modes import Array
from claims.record import ATTENTIONS, LARGE, SMALL, TRAINED, Corpus, NotInRecord, Pairs, Run
from claims.rules import FAILS, HOLDS, ONE_SEED, UNDECIDED, Decision, Finding
from claims.statistics import SHARE


def bits(run: Run) -> float:
    """The loss on the test set, in bits a token."""
    return float(run.analyzed["loss"]) / math.log(2)


def settings(corpora: Iterable[Corpus], model: str, other: str) -> dict[str, Pairs]:
    """Runs with equal seeds of two models, by corpus and size."""
    found = {}
    for corpus in corpora:
        for size in (SMALL, LARGE):
            try:
                pairs = corpus.pairs({"model": model}, {"model": other}, size=size, role=TRAINED)
            except NotInRecord:
                continue
            require_equal_updates(pairs)
            found[f"{corpus.name} {size}"] = pairs
    if not found:
        raise NotInRecord(f"no seed has both a run with model {model} and one with model {other}")
    return found


def pooled_interval(values: Sequence[Array]) -> tuple[float, float, float]:
    """The mean of all differences and its interval of 95 %, by the variance within groups."""
    number = sum(map(len, values))
    freedom = number - len(values)
    mean = float(numpy.concatenate(values).mean())
    if not freedom:
        return mean, math.nan, math.nan
    squares = sum(float(((group - group.mean()) ** 2).sum()) for group in values)
    reach = float(stats.t.ppf((1 + SHARE) / 2, freedom)) * math.sqrt(squares / freedom / number)
    return mean, mean - reach, mean + reach


def _densities(runs: Sequence[Run]) -> str:
    shown = (words.number(each(runs, mean_of([name], "density")).mean()) for name in ATTENTIONS)
    return ", ".join(shown)


def compared(
    corpora: Sequence[Corpus], model: str, other: str = SOFTMAX, limit: float = 0.0
) -> Finding:
    """Whether a model's loss is at most so many bits above another's."""
    found = settings(corpora, model, other)
    interval = pooled_interval([gap(pairs, bits) for pairs in found.values()])
    _, low, high = interval
    pairs = [pair for own in found.values() for pair in own]
    ones, others = zip(*pairs, strict=True)
    bleu = words.number(float(numpy.mean([one.bleu - two.bleu for one, two in pairs])), signed=True)
    return _found(
        found,
        interval,
        (high <= limit, low > limit, f"at most {limit:g}", f"above {limit:g}"),
        f"bits; BLEU {bleu}; densities {_densities(ones)} against {_densities(others)}",
    )


def bleu(corpora: Sequence[Corpus], limit: float) -> Finding:
    """Whether each sparse mapping is within so much BLEU of softmax."""

    def judge(model: str) -> Finding:
        found = settings(corpora, model, SOFTMAX)
        interval = pooled_interval([gap(pairs, lambda run: run.bleu) for pairs in found.values()])
        _, low, high = interval
        is_within, is_beyond = -limit <= low and high <= limit, low > limit or high < -limit
        rule = is_within, is_beyond, f"within {limit:g}", f"beyond {limit:g}"
        return _found(found, interval, rule, "BLEU")

    return of_models((FIXED, LEARNED), judge)


def _found(
    of_settings: Mapping[str, Pairs],
    interval: tuple[float, float, float],
    rule: tuple[bool, bool, str, str],
    shown: str,
) -> Finding:
    """What an interval says by a rule: whether it holds, or does not, and where it lies then."""
    mean, *ends = (words.number(one, 3, signed=True) for one in interval)
    holds, fails, near, far = rule
    decision = Decision(UNDECIDED, f"values {near} and others are likely")
    if math.isnan(interval[1]):
        decision = ONE_SEED
    elif holds or fails:
        why = f"every value of the interval is {near if holds else far}"
        decision = Decision(HOLDS if holds else FAILS, why)
    number = sum(map(len, of_settings.values()))
    test = f"interval over {number} pairs of runs with equal seeds, {', '.join(of_settings)}"
    reach = "" if math.isnan(interval[1]) else f" [{', '.join(ends)}]"
    return Finding(decision, f"{mean}{reach} {shown}", test)
