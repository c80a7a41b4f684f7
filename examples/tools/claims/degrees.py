"""What sparse attention costs compared with softmax, in all settings, and what a rise of α changes.

The measure is the loss on the test set, without label smoothing, in bits a token: between seeds, it
differs by a tenth of what BLEU does. A setting is a corpus and a size. Differences of runs with
equal seeds are pooled over settings, with the variance within settings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

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
    """Pairs of runs of two models with equal seeds, by corpus and size."""
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
    """The mean of all differences and its 95 % interval, from the variance within groups."""
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
    """Whether a model's loss is at most `limit` bits above another's."""
    found = settings(corpora, model, other)
    pairs = [pair for own in found.values() for pair in own]
    ones, others = zip(*pairs, strict=True)
    bleu = words.number(float(gap(pairs, lambda run: run.bleu).mean()), signed=True)
    shown = f"bits; BLEU {bleu}; densities {_densities(ones)} against {_densities(others)}"
    limits = (-math.inf, limit)
    return _judged(found, bits, limits, (f"at most {limit:g}", f"above {limit:g}"), shown)


def bleu(corpora: Sequence[Corpus], limit: float) -> Finding:
    """Whether each sparse mapping is within `limit` BLEU of softmax."""

    def judge(model: str) -> Finding:
        found, names = settings(corpora, model, SOFTMAX), (f"within {limit:g}", f"beyond {limit:g}")
        return _judged(found, lambda run: run.bleu, (-limit, limit), names, "BLEU")

    return of_models((FIXED, LEARNED), judge)


def _judged(
    of_settings: Mapping[str, Pairs],
    measure: Callable[[Run], float],
    limits: tuple[float, float],
    names: tuple[str, str],
    shown: str,
) -> Finding:
    """Whether a difference lies within limits; `names` describe values within and beyond them."""
    interval = pooled_interval([gap(pairs, measure) for pairs in of_settings.values()])
    mean, *ends = (words.number(one, 3, signed=True) for one in interval)
    (_, low, high), (least, most), (near, far) = interval, limits, names
    reach = f" [{', '.join(ends)}]"
    if math.isnan(low):
        decision, reach = ONE_SEED, ""
    elif least <= low and high <= most:
        decision = Decision(HOLDS, f"every value of the interval is {near}")
    elif low > most or high < least:
        decision = Decision(FAILS, f"every value of the interval is {far}")
    else:
        decision = Decision(UNDECIDED, f"values {near} and others are likely")
    number = sum(map(len, of_settings.values()))
    test = f"interval over {number} pairs of runs with equal seeds, {', '.join(of_settings)}"
    return Finding(decision, f"{mean}{reach} {shown}", test)
