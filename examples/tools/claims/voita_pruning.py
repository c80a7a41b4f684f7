"""Voita et al. 2019, section 6.3: pruning of all attentions, what it costs, and where heads are left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy

from claims.judging import (
    SMALL_SHARE,
    claim_of_each,
    each_seed,
    numbers_of,
    over_heads,
    p_of_sides,
)
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
    NothingToJudge,
    Run,
)
from claims.strata import Draw, HeadStatistic, chosen_more_often
from claims.verdicts import FAILS, UNDECIDED, Claim, Finding, combined, more_than
from claims.words import name_of, over_seeds

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


Left = Mapping[str, int]  # of each attention, how many heads


def _left(run: Run) -> Left:
    """How many heads of each attention a model has."""
    return {name: sum(run.heads[name]) for name in ATTENTIONS}


def _against_each(
    baselines: Sequence[Run], left: Sequence[Left], attention: str
) -> dict[str, HeadStatistic]:
    """How much more often heads of one attention are left than those of each of the others.

    To be more than the others together says little: where one of them has lost nearly all, each of
    the rest is.

    Raises:
        NothingToJudge: there are no others.
    """
    found = {}
    for other in ATTENTIONS:
        draws = [
            Draw(
                baseline.seed,
                sum(baseline.heads[attention]) + sum(baseline.heads[other]),
                sum(baseline.heads[attention]),
                own[attention] + own[other],
                own[attention],
            )
            for baseline, own in zip(baselines, left, strict=True)
        ]
        tested = chosen_more_often(draws) if other != attention else None
        if tested is not None:
            found[other] = tested
    if not found:
        raise NothingToJudge("the models have one attention alone")
    return found


def _counted(left: Sequence[Left]) -> str:
    """Such as ``encoder-self 6, 5, 7; decoder-self 9, 9, 8; cross 9, 10, 9 heads``."""
    counts = (f"{name} {', '.join(str(own[name]) for own in left)}" for name in ATTENTIONS)
    return f"{'; '.join(counts)} heads"


@claim_of_each(
    Claim(
        "voita-encoder-first",
        f"{PAPER}, 6.3.2",
        "Of all attentions, heads of the encoder are pruned first",
    )
)
def _encoder_first(corpus: Corpus, model: str) -> Finding:
    """By the course of the search where it was kept, else by which heads are left at its end."""
    pairs = pruned_with_baseline(corpus, model, ALL)
    baselines = [baseline for _, baseline in pairs]
    at_end = [_left(pruned) for pruned, _ in pairs]
    halves = [half_closed(pruned, baseline) for pruned, baseline in pairs]
    points = [point for point in halves if point is not None]
    known = len(points) == len(pairs)
    tested = _opposite(_against_each(baselines, points if known else at_end, ENCODER_SELF))
    found = _first_or_last(tested, "heads of the encoder are removed more often", model)
    if not known:
        measure = f"{found.measure}; the order within the search is not known"
        return replace(found, measure=measure, values=f"{_counted(at_end)} left; {found.values}")
    return replace(
        found,
        measure=f"{found.measure}; at the point of the search where half of all heads are closed",
        values=f"{_counted(points)} open; {found.values}; at the end {_counted(at_end)} left",
    )


def half_closed(pruned: Run, baseline: Run) -> Mapping[str, int] | None:
    """Of each attention how many heads were open when first half of all were closed, or more.

    Half-way the order shows best: at the start none is closed, and at the end the budget decides.
    The record has means over some updates, which are rounded here to whole heads. None where the
    course of the search was not kept, or never came so far.
    """
    whole = sum(sum(layers) for layers in baseline.heads.values())
    for point in sorted(pruned.search or (), key=lambda point: point["updates"]):
        if point["open"].keys() != baseline.heads.keys():
            return None  # the heads of one attention alone had gates
        if 2 * sum(point["open"].values()) <= whole:
            return {attention: round(heads) for attention, heads in point["open"].items()}
    return None


def _opposite(more: Mapping[str, HeadStatistic]) -> dict[str, HeadStatistic]:
    """How much less often, of what is more often."""
    return {
        name: HeadStatistic(
            {seed: -value for seed, value in one.by_seed.items()},
            -one.chance,
            one.less,
            one.greater,
        )
        for name, one in more.items()
    }


@claim_of_each(
    Claim(
        "voita-cross-last",
        f"{PAPER}, 6.3.2",
        "Heads of the attention from the decoder to the encoder are the most important: pruned last",
    )
)
def _cross_last(corpus: Corpus, model: str) -> Finding:
    pairs = pruned_with_baseline(corpus, model, ALL)
    at_end = [_left(pruned) for pruned, _ in pairs]
    tested = _against_each([baseline for _, baseline in pairs], at_end, CROSS)
    found = _first_or_last(tested, "heads of cross-attention are left more often", model)
    return replace(found, values=f"{_counted(at_end)} left; {found.values}")


def _first_or_last(tested: Mapping[str, HeadStatistic], what: str, model: str) -> Finding:
    """Whether it is so against each of the other attentions: the claim needs them all."""
    decision = combined(
        {f"against {name}": over_heads(one, SMALL_SHARE) for name, one in tested.items()}
    )
    differences = (
        f"{over_seeds(one.values, signed=True)} {each_seed(one.values, signed=True)} against {name}"
        for name, one in tested.items()
    )
    p_values = (f"against {name} {p_of_sides(one)}" for name, one in tested.items())
    return Finding(
        f"by how much {what} than those of each other attention, as a difference of shares; "
        f"{BUDGETS[ALL]}, {name_of(model)}",
        f"difference {', '.join(differences)}",
        f"against equal shares: Fisher's exact test, one-sided, counts of seeds added up: "
        f"{', '.join(p_values)}",
        decision.verdict,
        decision.why,
        {k: v for name, one in tested.items() for k, v in numbers_of(one, name).items()},
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
        NothingToJudge: it has none.
    """
    counts = run.heads[attention]
    if not sum(counts):
        raise NothingToJudge(f"{run.run} has no head of {attention} left")
    return sum(layer * count for layer, count in enumerate(counts)) / sum(counts)
