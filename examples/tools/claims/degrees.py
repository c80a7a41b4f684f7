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
    ALL,
    FIXED,
    LEARNED,
    SOFTMAX,
    brevity,
    each,
    gap,
    mean_of,
    of_models,
    pruned_and_other,
    require_equal_updates,
)
from claims.modes import Array
from claims.record import ATTENTIONS, CONTINUED, LARGE, SMALL, TRAINED, Corpus, NotInRecord, Pairs, Run
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
    shown = (
        f"bits; BLEU {bleu}, {brevity(pairs)}; densities {_densities(ones)} against "
        f"{_densities(others)}"
    )
    return _judged(_gaps(found, bits), *_at_most(limit), shown)


def rise(corpora: Sequence[Corpus], model: str) -> Finding:
    """Whether a mapping's loss is lower when it rises."""
    return compared(corpora, f"rise50-{model}", model)


def pruning_costs(corpora: Sequence[Corpus], limit: float) -> Finding:
    """Whether pruning to a third of the heads costs learned α at most `limit` bits more than softmax."""
    found = {}
    for corpus in corpora:
        each_seed = (
            {
                one.seed: bits(one) - bits(other)
                for one, other in pruned_and_other(corpus, model, ALL, CONTINUED)
            }
            for model in (LEARNED, SOFTMAX)
        )
        learned, softmax = each_seed
        seeds = sorted(learned.keys() & softmax.keys())
        if not seeds:
            raise NotInRecord("no seed has pruned models of both")
        found[corpus.name] = numpy.array([learned[seed] - softmax[seed] for seed in seeds])
    return _judged(found, *_at_most(limit), "bits")


def bleu(corpora: Sequence[Corpus], limit: float) -> Finding:
    """Whether each sparse mapping is within `limit` BLEU of softmax."""

    def judge(model: str) -> Finding:
        found, names = settings(corpora, model, SOFTMAX), (f"within {limit:g}", f"beyond {limit:g}")
        shown = f"BLEU; {brevity([pair for pairs in found.values() for pair in pairs])}"
        return _judged(_gaps(found, lambda run: run.bleu), (-limit, limit), names, shown)

    return of_models((FIXED, LEARNED), judge)


def _gaps(found: Mapping[str, Pairs], measure: Callable[[Run], float]) -> dict[str, Array]:
    return {name: gap(pairs, measure) for name, pairs in found.items()}


def _at_most(limit: float) -> tuple[tuple[float, float], tuple[str, str]]:
    return (-math.inf, limit), (f"at most {limit:g}", f"above {limit:g}")


def _judged(
    of_settings: Mapping[str, Array],
    limits: tuple[float, float],
    names: tuple[str, str],
    shown: str,
) -> Finding:
    """Whether differences lie within limits; `names` describe values within and beyond them."""
    interval = pooled_interval([*of_settings.values()])
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
