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

from claims import measures, words
from claims.measures import FIXED, LEARNED, SOFTMAX, brevity, each, gap, mean_of
from claims.modes import Array
from claims.record import ATTENTIONS, LARGE, SMALL, TRAINED, Corpus, NotInRecord, Pairs, Run
from claims.rules import FAILS, HOLDS, ONE_SEED, UNDECIDED, Decision, Finding
from claims.statistics import SHARE

AT_MOST, WITHIN = ("at most", "above"), ("within", "beyond")


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
            measures.require_equal_updates(pairs)
            found[f"{corpus.name} {size}"] = pairs
    if not found:
        raise NotInRecord(
            f"no seed has both a run with model {model} and one with model {other}, scored on the same test set"
        )
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
    densities = f"densities {_densities(ones)} against {_densities(others)}"
    shown = f"bits; BLEU {bleu}, {brevity(pairs)}; {densities}"
    return _judged(_gaps(found, bits), limit, shown)


def rise(corpora: Sequence[Corpus], model: str) -> Finding:
    """Whether a mapping's loss is lower when it rises."""
    return compared(corpora, f"rise50-{model}", model)


def pruning_costs(corpora: Sequence[Corpus], limit: float) -> Finding:
    """Whether pruning to a third of the heads costs learned α at most `limit` bits more than softmax."""
    pairs = {corpus.name: measures.pruned_of_both(corpus) for corpus in corpora}
    costs = {name: gap(one, bits) - gap(other, bits) for name, (one, other) in pairs.items()}
    return _judged(costs, limit, "bits")


@measures.of_each((FIXED, LEARNED))
def bleu(corpora: Sequence[Corpus], model: str, limit: float) -> Finding:
    """Whether a sparse mapping is within `limit` BLEU of softmax."""
    found = settings(corpora, model, SOFTMAX)
    shown = f"BLEU; {brevity([pair for pairs in found.values() for pair in pairs])}"
    return _judged(_gaps(found, lambda run: run.bleu), limit, shown, -limit)


def _gaps(found: Mapping[str, Pairs], measure: Callable[[Run], float]) -> dict[str, Array]:
    return {name: gap(pairs, measure) for name, pairs in found.items()}


def _judged(
    gaps: Mapping[str, Array], most: float, shown: str, least: float = -math.inf
) -> Finding:
    """Whether differences, by setting, lie from `least` to `most`."""
    interval = pooled_interval([*gaps.values()])
    mean, *ends = (words.number(one, 3, signed=True) for one in interval)
    _, low, high = interval
    near, far = (f"{word} {most:g}" for word in (AT_MOST if math.isinf(least) else WITHIN))
    reach = f" [{', '.join(ends)}]"
    if math.isnan(low):
        decision, reach = ONE_SEED, ""
    elif least <= low and high <= most:
        decision = Decision(HOLDS, f"every value of the interval is {near}")
    elif low > most or high < least:
        decision = Decision(FAILS, f"every value of the interval is {far}")
    else:
        decision = Decision(UNDECIDED, f"values {near} and others are likely")
    number = sum(map(len, gaps.values()))
    test = f"interval over {number} pairs of runs with equal seeds, {', '.join(gaps)}"
    return Finding(decision, f"{mean}{reach} {shown}", test)
