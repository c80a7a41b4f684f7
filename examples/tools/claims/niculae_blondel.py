"""Niculae and Blondel 2017, *A Regularized Framework for Sparse and Structured Neural Attention*."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy

from claims.judging import SMALL_SHARE, SOFTMAX, compare_bleu, over_seeds
from claims.record import CROSS, SMALL, TRAINED, Corpus, Run
from claims.verdicts import FAILS, Claim, Decision, Finding, claim, combine, more_than, within

PAPER = "Niculae and Blondel 2017"
FUSEDMAX, OSCARMAX, SQPNORMMAX = "cross-fusedmax", "cross-oscarmax", "cross-sqpnormmax"
CROSS_SPARSEMAX = "cross-sparsemax"
# The mechanisms of section 4.2 beside softmax, and how the table names them
MAPPINGS = {
    FUSEDMAX: "fusedmax",
    OSCARMAX: "oscarmax",
    SQPNORMMAX: "sq-pnorm-max",
    CROSS_SPARSEMAX: "sparsemax",
}
WITHIN = 1.0  # BLEU
SMALL_WEIGHT = 0.01  # of a step's attention
_WHERE = "small models; each mapping in cross-attention alone, as in the paper, softmax elsewhere"


def _models(corpus: Corpus, model: str) -> list[Run]:
    return corpus.need(model=model, size=SMALL, role=TRAINED)


def _compared_with_softmax(corpus: Corpus, model: str) -> Finding:
    compared = compare_bleu(corpus, {"model": model}, {"model": SOFTMAX}, size=SMALL, role=TRAINED)
    decision = within(compared.differences, WITHIN, compared.bootstrap)
    return Finding(
        f"BLEU of the test set, {MAPPINGS[model]} against softmax; small models",
        compared.values,
        compared.test,
        decision.verdict,
        decision.why,
        compared.numbers,
    )


def _register(model: str) -> None:
    @claim(
        Claim(
            f"niculae-bleu-{model.removeprefix('cross-')}",
            f"{PAPER}, 4.2",
            f"{MAPPINGS[model]} in cross-attention is within 1 BLEU of softmax.",
        )
    )
    def _one(corpus: Corpus) -> Finding:
        return _compared_with_softmax(corpus, model)


for _model in MAPPINGS:
    _register(_model)


@claim(
    Claim(
        "niculae-best",
        f"{PAPER}, 4.2",
        "All attention mechanisms are within 1 BLEU of the best mechanism.",
    )
)
def _best(corpus: Corpus) -> Finding:
    models = (SOFTMAX, *MAPPINGS)
    runs = {model: _models(corpus, model) for model in models}
    scores = {model: float(numpy.mean([run.bleu for run in own])) for model, own in runs.items()}
    # The best on the test set would owe its place to that set's chance
    losses = {
        model: float(numpy.mean([run.least_validation_loss for run in own]))
        for model, own in runs.items()
    }
    best = min(losses, key=losses.__getitem__)
    compared = {
        model: compare_bleu(corpus, {"model": model}, {"model": best}, size=SMALL, role=TRAINED)
        for model in models
        if model != best
    }
    decisions = {
        model: within(one.differences, WITHIN, one.bootstrap) for model, one in compared.items()
    }
    farthest = max(compared, key=lambda model: abs(numpy.mean(compared[model].differences)))
    # The reason is that of the mechanism which decides: one that is too far, else the farthest
    verdict = combine(list(decisions.values()))
    deciding = next((m for m in decisions if decisions[m].verdict == verdict == FAILS), farthest)
    names = {SOFTMAX: "softmax", **MAPPINGS}
    return Finding(
        f"BLEU of the test set, each mechanism against the one with the least validation loss; "
        f"{_WHERE}",
        ", ".join(f"{names[model]} {score:.2f}" for model, score in scores.items())
        + f"; least validation loss {losses[best]:.3f}"
        + f"; farthest from {names[best]}: {names[farthest]}, "
        f"{over_seeds(compared[farthest].differences, signed=True)}",
        f"of each: {compared[farthest].test} (of {names[farthest]})",
        verdict,
        f"of {names[deciding]} against {names[best]}: {decisions[deciding].why}",
        {names[model]: score for model, score in scores.items()},
    )


def _mean_of_heads(run: Run, *path: str) -> float:
    return float(numpy.mean([head.value(*path) for head in run.each_head(CROSS)]))


def _more_than_others(
    corpus: Corpus, model: str, others: Mapping[str, str], number: Callable[[Run], float]
) -> tuple[str, str, list[Decision]]:
    """One mapping's number against that of others, on models of the same seeds.

    Returns:
        The values, in words; the differences, in words; and the decisions.
    """
    values, differences, decisions = {}, [], []
    for other, name in others.items():
        pairs = corpus.pairs({"model": model}, {"model": other}, size=SMALL, role=TRAINED)
        values[MAPPINGS[model]] = [number(first) for first, _ in pairs]
        values[name] = [number(second) for _, second in pairs]
        gaps = [a - b for a, b in zip(values[MAPPINGS[model]], values[name], strict=True)]
        differences.append(f"against {name} {over_seeds(gaps, signed=True)}")
        decisions.append(more_than(gaps, margin=SMALL_WEIGHT))
    words = "; ".join(f"{name} {numpy.mean(found):.3f}" for name, found in values.items())
    return words, "; ".join(differences), decisions


def _groups(corpus: Corpus, model: str, number: str, what: str) -> Finding:
    """Whether a structured mapping makes groups of equal weight that the others do not make."""
    others = {CROSS_SPARSEMAX: "sparsemax", SOFTMAX: "softmax"}
    values, differences, decisions = _more_than_others(
        corpus, model, others, lambda run: _mean_of_heads(run, "equal_weights", number)
    )
    return Finding(
        f"share of a step's attention on {what} of exactly equal weight, mean over heads of "
        "cross-attention; small models",
        f"{values}; {differences}",
        f"t intervals over seeds; up to {SMALL_WEIGHT:g} is of no importance",
        combine(decisions),
        "; ".join(
            f"against {name}: {decision.why}"
            for name, decision in zip(others.values(), decisions, strict=True)
        ),
    )


@claim(
    Claim(
        "niculae-segments",
        f"{PAPER}, 1 and 4.2",
        "Fusedmax gives equal weight to segments of neighbouring words, as softmax and sparsemax never do.",
    )
)
def _segments(corpus: Corpus) -> Finding:
    return _groups(corpus, FUSEDMAX, "run_weight", "runs of neighbouring tokens")


@claim(
    Claim(
        "niculae-clusters",
        f"{PAPER}, 3.2 and 4.2",
        "Oscarmax gives equal weight to groups of words, wherever they are, as softmax and sparsemax "
        "never do.",
    )
)
def _clusters(corpus: Corpus) -> Finding:
    return _groups(corpus, OSCARMAX, "cluster_weight", "tokens in groups, side by side or apart,")


@claim(
    Claim("niculae-sparse", f"{PAPER}, 2, figure 2", "All mappings but softmax leave words out.")
)
def _sparse(corpus: Corpus) -> Finding:
    decisions, words = {}, []
    for model, name in MAPPINGS.items():
        runs = _models(corpus, model)
        zeros = [1 - _mean_of_heads(run, "density") for run in runs]
        decisions[name] = more_than(zeros, margin=SMALL_SHARE)
        words.append(f"{name} {over_seeds(zeros)}")
    return Finding(
        f"share of weights of exactly zero in cross-attention, mean over heads; {_WHERE}",
        "; ".join(words),
        f"t intervals over seeds; up to {SMALL_SHARE:g} is of no importance",
        combine(list(decisions.values())),
        "; ".join(f"{name}: {decision.why}" for name, decision in decisions.items()),
    )
