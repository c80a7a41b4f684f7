"""Voita et al. 2019, section 6.3: pruning of all attentions, what it costs, and where heads are left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy

from claims.judging import SMALL_SHARE, claim_of_each, existing, numbers_of, over_heads
from claims.pruned import ALL, BUDGETS, HALF, compare_pruned, loss_by_pruning, pruned_with_baseline
from claims.record import (
    ATTENTIONS,
    CROSS,
    DECODER_SELF,
    ENCODER_SELF,
    LARGE,
    PRUNED,
    SCRATCH,
    Corpus,
    NotInRecord,
    Run,
)
from claims.strata import Draw, HeadStatistic, chosen_more_often
from claims.verdicts import FAILS, UNDECIDED, Claim, Finding, more_than
from claims.words import name_of, over_seeds, p_value

PAPER = "Voita et al. 2019"
# Of no importance: between a decoder's attentions, so many layers of difference in where heads are
SMALL_LAYERS = 0.1


@claim_of_each(
    Claim(
        "voita-pruned",
        f"{PAPER}, 6.3.1",
        "More than half of all heads can be pruned, and no more than 0.25 BLEU is lost",
    )
)
def _pruned(corpus: Corpus, model: str) -> Finding:
    """By the budget of half of the heads, where it is; to fail with fewer left refutes nothing."""
    if corpus.of(model=model, size=LARGE, role=PRUNED, budget=HALF):
        found = loss_by_pruning(corpus, model, HALF, 0.25)
        return replace(found, measure=f"{found.measure}; half is the nearest to more than half")
    found = loss_by_pruning(corpus, model, ALL, 0.25)
    if found.verdict != FAILS:
        return found
    why = f"of two thirds that were pruned it is not so, which leaves half open: {found.why}"
    return replace(found, verdict=UNDECIDED, why=why)


@claim_of_each(
    Claim(
        "voita-pruned-wider",
        f"{PAPER}, 6.3.1, by a wider limit",
        "Two thirds of all heads can be pruned, and no more than 0.5 BLEU is lost",
    )
)
def _pruned_wider(corpus: Corpus, model: str) -> Finding:
    return loss_by_pruning(corpus, model, ALL, 0.5)


@claim_of_each(
    Claim(
        "voita-scratch",
        f"{PAPER}, 6.3.1",
        "A pruned model is better than one with the same heads trained from scratch",
    )
)
def _scratch(corpus: Corpus, model: str) -> Finding:
    compared = compare_pruned(corpus, model, ALL, {"role": SCRATCH, "budget": ALL})
    decision = more_than(compared.differences, compared.bootstrap, margin=0.1)
    first, second = compared.pairs[0]
    return Finding(
        f"BLEU of the test set, {BUDGETS[ALL]} against the same heads in each layer from scratch; "
        f"{first.updates} and {second.updates} updates in all; {name_of(model)}",
        compared.values,
        compared.test,
        decision.verdict,
        decision.why,
        compared.numbers,
    )


def _draw(baseline: Run, left: Mapping[str, int], attention: str) -> Draw:
    """Which of the baseline's heads are of an attention, and which are left, by attention."""
    return Draw(
        baseline.seed,
        sum(sum(layers) for layers in baseline.heads.values()),
        sum(baseline.heads[attention]),
        sum(left[name] for name in ATTENTIONS),
        left[attention],
    )


def _left_of(
    corpus: Corpus, model: str, attention: str
) -> tuple[list[tuple[Run, Run]], HeadStatistic]:
    """How much more often the heads of one attention are left than those of the others."""
    pairs = pruned_with_baseline(corpus, model, ALL)
    draws = [
        _draw(baseline, {name: sum(pruned.heads[name]) for name in ATTENTIONS}, attention)
        for pruned, baseline in pairs
    ]
    return pairs, existing(chosen_more_often(draws), "the models have one attention alone")


def _shares_left(pairs: list[tuple[Run, Run]]) -> str:
    """Such as ``encoder-self 6, 5, 7; decoder-self 9, 9, 8; cross 9, 10, 9 heads left``."""
    counts = (
        f"{attention} {', '.join(str(sum(pruned.heads[attention])) for pruned, _ in pairs)}"
        for attention in ATTENTIONS
    )
    return f"{'; '.join(counts)} heads left"


@claim_of_each(
    Claim(
        "voita-encoder-first",
        f"{PAPER}, 6.3.2",
        "Of all attentions, heads of the encoder are pruned first",
    )
)
def _encoder_first(corpus: Corpus, model: str) -> Finding:
    """By the course of the search where it was kept, else by which heads are left at its end."""
    pairs, more = _left_of(corpus, model, ENCODER_SELF)
    what = "heads of the encoder are removed more often"
    halves = [half_closed(pruned, baseline) for pruned, baseline in pairs]
    points = [point for point in halves if point is not None]
    if len(points) < len(pairs):
        found = _first_or_last(pairs, _opposite(more), what, model)
        measure = f"{found.measure}; the order within the search is not known"
        return replace(found, measure=measure)
    draws = [
        _draw(baseline, point, ENCODER_SELF)
        for (_, baseline), point in zip(pairs, points, strict=True)
    ]
    early = _opposite(existing(chosen_more_often(draws), "the models have one attention alone"))
    found = _first_or_last(pairs, early, what, model)
    measure = f"{found.measure}; at the point of the search where half of all heads are closed"
    open_then = "; ".join(
        f"{attention} {', '.join(str(point[attention]) for point in points)}"
        for attention in ATTENTIONS
    )
    difference = over_seeds(early.values, signed=True)
    at_end = over_seeds(_opposite(more).values, signed=True)
    values = (
        f"{open_then} heads open; difference {difference}; at the end {_shares_left(pairs)}, "
        f"difference {at_end}"
    )
    return replace(found, measure=measure, values=values)


def half_closed(pruned: Run, baseline: Run) -> Mapping[str, int] | None:
    """Of each attention how many heads were open when first half of all were closed, or more.

    Half-way the order shows best: at the start none is closed, and at the end the budget decides.
    The record has means over some updates, which are rounded here to whole heads. None where the course of the search was not kept, or never came so far.
    """
    whole = sum(sum(layers) for layers in baseline.heads.values())
    for point in sorted(pruned.search or (), key=lambda point: point["updates"]):
        if point["open"].keys() != baseline.heads.keys():
            return None  # the heads of one attention alone had gates
        if 2 * sum(point["open"].values()) <= whole:
            return {attention: round(heads) for attention, heads in point["open"].items()}
    return None


def _opposite(more: HeadStatistic) -> HeadStatistic:
    by_seed = {seed: -value for seed, value in more.by_seed.items()}
    return HeadStatistic(by_seed, -more.chance, more.less, more.greater)


@claim_of_each(
    Claim(
        "voita-cross-last",
        f"{PAPER}, 6.3.2",
        "Heads of the attention from the decoder to the encoder are the most important: pruned last",
    )
)
def _cross_last(corpus: Corpus, model: str) -> Finding:
    pairs, more = _left_of(corpus, model, CROSS)
    return _first_or_last(pairs, more, "heads of cross-attention are left more often", model)


def _first_or_last(
    pairs: list[tuple[Run, Run]], tested: HeadStatistic, what: str, model: str
) -> Finding:
    decision = over_heads(tested, SMALL_SHARE)
    return Finding(
        f"by how much {what} than other heads, as a difference of shares; {BUDGETS[ALL]}, "
        f"{name_of(model)}",
        f"{_shares_left(pairs)}; difference {over_seeds(tested.values, signed=True)}",
        f"against equal shares: Fisher's exact test, one-sided, counts of seeds added up: "
        f"{p_value(tested.greater)}",
        decision.verdict,
        decision.why,
        numbers_of(tested),
    )


@claim_of_each(
    Claim(
        "voita-decoder-layers",
        f"{PAPER}, 6.3.2",
        "In the decoder, self-attention is kept in the lower layers, and attention to the encoder in "
        "the higher ones",
    )
)
def _decoder_layers(corpus: Corpus, model: str) -> Finding:
    pairs = pruned_with_baseline(corpus, model, ALL)
    layers = {
        attention: [_mean_layer(pruned, attention) for pruned, _ in pairs]
        for attention in (DECODER_SELF, CROSS)
    }
    differences = [b - a for a, b in zip(layers[DECODER_SELF], layers[CROSS], strict=True)]
    decision = more_than(differences, margin=SMALL_LAYERS)
    return Finding(
        f"mean layer, from 0, of the heads that are left, cross less decoder-self; {BUDGETS[ALL]}, "
        f"{name_of(model)}",
        f"{over_seeds(differences, signed=True)}; decoder-self "
        f"{numpy.mean(layers[DECODER_SELF]):.2f}, cross {numpy.mean(layers[CROSS]):.2f}",
        "t interval over seeds",
        decision.verdict,
        decision.why,
        {"difference": float(numpy.mean(differences))},
    )


def _mean_layer(run: Run, attention: str) -> float:
    """Of the heads of a model.

    Raises:
        NotInRecord: it has none.
    """
    counts = run.heads[attention]
    if not sum(counts):
        raise NotInRecord(f"{run.run} has no head of {attention} left")
    return sum(layer * count for layer, count in enumerate(counts)) / sum(counts)
