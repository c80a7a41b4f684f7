"""Voita et al. 2019, section 4: which heads of the encoder are relevant, and which are confident."""

from __future__ import annotations

from collections.abc import Callable

import numpy

from claims.judging import (
    ONE_SIDED,
    SMALL_CORRELATION,
    as_correlation,
    as_share,
    claim_of_each,
    encoder_of,
    existing,
    numbers_of,
    over_heads,
    p_of_sides,
    trained,
    where,
)
from claims.record import ATTENTIONS, ENCODER_SELF, Corpus, Head, Run
from claims.strata import Stratum, concentration, rank_correlation, strata_of
from claims.verdicts import Claim, Finding, holm
from claims.words import number, p_value

PAPER = "Voita et al. 2019"


@claim_of_each(
    Claim(
        "voita-few-heads",
        f"{PAPER}, 4",
        "In each layer of the encoder a small number of heads is much more relevant than the others",
    )
)
def _few_heads(corpus: Corpus, model: str) -> Finding:
    runs = trained(corpus, model)
    layers = sorted({head.layer for run in runs for head in encoder_of(run)})
    shares = [one for layer in layers for one in _shares(runs, layer)]
    tested = existing(concentration(shares), "no layer of the encoder has two heads")
    first = [max(_relevances([h for h in encoder_of(run) if h.layer == 0])) for run in runs]
    by_layer = [
        float(numpy.mean(own.values))
        for layer in layers
        if (own := concentration(_shares(runs, layer))) is not None
    ]
    decision = over_heads(tested)
    return Finding(
        f"share of a layer's relevance (LRP) that the most relevant quarter of its heads has, mean "
        f"over layers; {where(model)}",
        f"{as_share(tested.values)}; by layer from below {', '.join(map(number, by_layer))}; by equal "
        f"heads it would be 0.25, by a stick broken at random {tested.chance:.2f}; the most relevant "
        f"head of the lowest layer has {numpy.mean(first):.2f}",
        f"against sticks broken at random (uniform on the simplex, 10,000 for each seed, combined by "
        f"Fisher): {p_of_sides(tested)}",
        decision.verdict,
        f"{decision.why}; chance divides a layer's relevance at random, any division as likely as "
        "another",
        {**numbers_of(tested), "chance": tested.chance},
    )


def _shares(runs: list[Run], layer: int) -> list[tuple[int, list[float]]]:
    """Of each run that has heads in this layer of the encoder, its seed and their relevance."""
    heads = {run.seed: [h for h in encoder_of(run) if h.layer == layer] for run in runs}
    return [(seed, _relevances(own)) for seed, own in heads.items() if own]


def _relevances(heads: list[Head]) -> list[float]:
    return [head.value("relevance") for head in heads]


@claim_of_each(
    Claim(
        "voita-confidence",
        f"{PAPER}, 4",
        "The relevance of heads agrees to a reasonable extent with their confidence",
    )
)
def _confidence(corpus: Corpus, model: str) -> Finding:
    runs = trained(corpus, model)
    found = {
        attention: rank_correlation(_by_layer(runs, attention, _confidence_of))
        for attention in ATTENTIONS
    }
    tested = existing(found[ENCODER_SELF], "no layer of the encoder has heads that differ")
    layers = sorted({head.layer for run in runs for head in encoder_of(run)})
    by_layer = [_of_layer(runs, layer) for layer in layers]
    others = [(name, one) for name, one in found.items() if name != ENCODER_SELF and one]
    corrected = holm([one.greater for _, one in others])
    decision = over_heads(tested, SMALL_CORRELATION)
    return Finding(
        "Spearman's correlation of relevance (LRP) and confidence (mean largest weight, ends of "
        f"sentences left out) of the heads of a layer, mean over layers; {where(model)}",
        f"{as_correlation(tested.values)}; by layer from below "
        f"{', '.join(map(number, by_layer))}; "
        + "; ".join(
            f"{name} {number(float(numpy.mean(one.values)))} ({p_value(p)} after Holm)"
            for (name, one), p in zip(others, corrected, strict=True)
        ),
        f"{ONE_SIDED}: {p_of_sides(tested)}",
        decision.verdict,
        f"of the agreement in the encoder: {decision.why}",
        numbers_of(tested),
    )


def _confidence_of(head: Head) -> float:
    return head.value("confidence")


def _by_layer(runs: list[Run], attention: str, other: Callable[[Head], float]) -> list[Stratum]:
    """Relevance and another number of the heads of each layer of each run."""
    return [
        stratum
        for run in runs
        for stratum in strata_of(
            run.seed, [(h.layer, other(h), h.value("relevance")) for h in run.each_head(attention)]
        )
    ]


def _of_layer(runs: list[Run], layer: int) -> float:
    strata = [
        Stratum(run.seed, [_confidence_of(h) for h in heads], _relevances(heads))
        for run in runs
        if (heads := [head for head in encoder_of(run) if head.layer == layer])
    ]
    tested = rank_correlation(strata)
    return float(numpy.mean(tested.values)) if tested else 0.0
