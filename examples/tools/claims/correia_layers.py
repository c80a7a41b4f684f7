"""Correia, Niculae and Martins 2019, section 5.1: density and diversity of heads, by layers.

Runs are those of the large size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy

from claims import words
from claims.correia import FIXED, LEARNED, PLAIN, SOFTMAX, SPARSE
from claims.record import (
    ATTENTIONS,
    CROSS,
    DECODER_SELF,
    ENCODER_SELF,
    Corpus,
    NothingToJudge,
    NotInRecord,
    Run,
)
from claims.verdicts import (
    FAILS,
    HOLDS,
    Claim,
    Decision,
    Finding,
    claim,
    combined,
    finding,
    more_than,
    negated,
)

DENSE_BINS = 1  # of 20: densities of 0.95 and more
IMPORTANT_SHARE = 0.01
# Of no importance: differences in density, in its spread, and in diversity
UNIMPORTANT_DENSITY, UNIMPORTANT = 0.02, 0.01


def _per_attention(
    corpus: Corpus, measure: Callable[[Run, str], float], first: str, second: str
) -> dict[str, list[float]]:
    """Of each attention, what the first model has more than the second, of each seed."""
    pairs = corpus.pairs({"model": first}, {"model": second}, **PLAIN)
    return {a: [measure(one, a) - measure(other, a) for one, other in pairs] for a in ATTENTIONS}


def histogram(run: Run, *attentions: str) -> Any:
    """Pairs of head and sentence by density, in 20 bins, as shares.

    Raises:
        NotInRecord: density was not measured.
    """
    rows = [head.measures.get("density_histogram") for head in run.each_head(*attentions)]
    found = [row for row in rows if row is not None]
    if not found:
        raise NotInRecord(f"the analysis of {run.run} has no histogram of density")
    counts = numpy.sum(found, axis=0)
    return counts / counts.sum()


@claim(
    Claim(
        "correia-density-mode",
        "Correia et al. 2019, 5.1 (figure 4)",
        "With learned α there is a mode of fully dense attention, which 1.5-entmax lacks.",
    )
)
def dense_mode(corpus: Corpus) -> Finding:
    """The last of 20 bins, which has to be above the one before it."""
    pairs = corpus.pairs({"model": LEARNED}, {"model": FIXED}, **PLAIN)
    histograms = [(histogram(one), histogram(other)) for one, other in pairs]
    learned = [float(one[-DENSE_BINS:].sum()) for one, _ in histograms]
    fixed = [float(other[-DENSE_BINS:].sum()) for _, other in histograms]
    each = [one - other for one, other in zip(learned, fixed, strict=True)]
    decision = more_than(each, margin=IMPORTANT_SHARE)
    pooled = numpy.mean([one for one, _ in histograms], axis=0)
    of_fixed = numpy.mean([other for _, other in histograms], axis=0)
    if decision.verdict == HOLDS and pooled[-1] <= pooled[-2]:
        decision = Decision(
            FAILS, "there are more, but no mode: the densities below are as frequent"
        )
    elif decision.verdict == HOLDS and of_fixed[-1] > of_fixed[-2] + IMPORTANT_SHARE:
        decision = Decision(FAILS, "there are more, but 1.5-entmax has such a mode, too")
    return finding(
        "share of pairs of head and sentence with a density of 0.95 or more",
        f"learned α {words.over_seeds(learned, 3)}, 1.5-entmax {words.over_seeds(fixed, 3)}",
        f"difference {words.over_seeds(each, 3, signed=True)}",
        decision,
        {**words.interval_numbers("difference", each), "bin before": float(pooled[-2])},
    )


def _mean_density(run: Run, attention: str) -> float:
    return float(numpy.mean([head.value("density") for head in run.each_head(attention)]))


@claim(
    Claim(
        "correia-density-modules",
        "Correia et al. 2019, 5.1 (figure 4)",
        "With learned α both attentions of the decoder are denser than the encoder's.",
    )
)
def decoder_is_denser(corpus: Corpus) -> Finding:
    """Mean densities of the same model."""
    runs = corpus.need(model=LEARNED, **PLAIN)
    means = {a: [_mean_density(run, a) for run in runs] for a in ATTENTIONS}
    decisions, tests = {}, {}
    numbers: dict[str, float] = {}
    for attention in (DECODER_SELF, CROSS):
        each = [d - e for d, e in zip(means[attention], means[ENCODER_SELF], strict=True)]
        decisions[attention] = more_than(each, margin=UNIMPORTANT_DENSITY)
        tests[attention] = words.over_seeds(each, signed=True)
        numbers |= words.interval_numbers(attention, each)
    return finding(
        f"mean density; a difference of {UNIMPORTANT_DENSITY:g} is of no importance",
        words.listed({a: words.over_seeds(values) for a, values in means.items()}),
        f"less that of the encoder: {words.listed(tests)}",
        combined(decisions),
        numbers,
    )


def _spread(run: Run, attention: str) -> float:
    """Standard deviation of density between heads of a layer, mean over layers."""
    layers = [[head["density"] for head in entry["heads"]] for entry in run.layers(attention)]
    spreads = [float(numpy.std(heads)) for heads in layers if len(heads) > 1 and None not in heads]
    if not spreads:
        raise NotInRecord(f"the analysis of {run.run} has no densities of {attention}")
    return float(numpy.mean(spreads))


@claim(
    Claim(
        "correia-density-layers",
        "Correia et al. 2019, 5.1 (figure 5)",
        "Learned α makes the heads of a layer differ more in density than 1.5-entmax does.",
    )
)
def densities_differ_in_layers(corpus: Corpus) -> Finding:
    """The mean over attentions decides."""
    return _mean_over_attentions(
        corpus, _spread, (LEARNED,), FIXED, "standard deviation of density in a layer"
    )


def _diversities(run: Run, attention: str) -> list[float]:
    """Of the layers that have one, the bottom first."""
    found = [entry.get("diversity") for entry in run.layers(attention)]
    return [float(value) for value in found if value is not None]


def _diversity(run: Run, attention: str) -> float:
    values = _diversities(run, attention)
    if not values:
        raise NotInRecord(f"the analysis of {run.run} has no diversity of {attention}")
    return float(numpy.mean(values))


@claim(
    Claim(
        "correia-diversity",
        "Correia et al. 2019, 5.1 (figure 6)",
        "Heads of both sparse models are more diverse than those of softmax.",
    )
)
def sparse_is_more_diverse(corpus: Corpus) -> Finding:
    """The mean over attentions decides, for each of the two."""
    return _mean_over_attentions(
        corpus, _diversity, SPARSE, SOFTMAX, "Jensen-Shannon divergence of a layer's heads"
    )


def _mean_over_attentions(
    corpus: Corpus,
    measure: Callable[[Run, str], float],
    models: Sequence[str],
    other: str,
    what: str,
) -> Finding:
    decisions, values, tests = {}, {}, {}
    numbers: dict[str, float] = {}
    for model in models:
        each = _per_attention(corpus, measure, model, other)
        means = [float(numpy.mean(row)) for row in zip(*each.values(), strict=True)]
        name = words.name_of(model)
        decisions[name] = more_than(means, margin=UNIMPORTANT)
        values[name] = words.over_seeds(means, 3, signed=True)
        of_each = {a: words.number(float(numpy.mean(v)), 3, signed=True) for a, v in each.items()}
        tests[name] = words.listed(of_each)
        numbers |= words.interval_numbers(model, means)
    measured = f"{what}, less that of {words.name_of(other)}"
    one = len(models) == 1
    found = next(iter(decisions.values())) if one else combined(decisions)
    return finding(
        f"{measured}; mean over layers and attentions; {UNIMPORTANT:g} is of no importance",
        words.listed(values),
        f"interval over seeds; of each attention: {words.listed(tests)}",
        found,
        numbers,
    )


@claim(
    Claim(
        "correia-diversity-peak",
        "Correia et al. 2019, 5.1 (figure 6)",
        "Diversity peaks in the middle layers of the encoder and of the cross-attention, not in those of "
        "the decoder's self-attention.",
    )
)
def diversity_peaks_in_the_middle(corpus: Corpus) -> Finding:
    """The mean of the inner layers less the higher of the outer two, with learned α."""
    runs = corpus.need(model=LEARNED, **PLAIN)
    decisions, values = {}, {}
    numbers: dict[str, float] = {}
    for attention in ATTENTIONS:
        heights = [_height(run, attention) for run in runs]
        decision = more_than(heights, margin=UNIMPORTANT)
        decisions[attention] = negated(decision) if attention == DECODER_SELF else decision
        values[attention] = words.over_seeds(heights, 3, signed=True)
        numbers |= words.interval_numbers(attention, heights)
    return finding(
        "Jensen-Shannon divergence, mean of the inner layers less the higher of the lowest and the top "
        f"one; learned α; {UNIMPORTANT:g} is of no importance",
        words.listed(values),
        f"interval over {len(runs)} seeds",
        combined(decisions),
        numbers,
    )


def _height(run: Run, attention: str) -> float:
    values = _diversities(run, attention)
    if len(values) < 3:
        raise NothingToJudge(f"{run.run} has no three layers of {attention} with a diversity")
    return float(numpy.mean(values[1:-1])) - max(values[0], values[-1])
