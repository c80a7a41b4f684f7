"""Niculae and Blondel 2017, *A Regularized Framework for Sparse and Structured Neural Attention*.

Small models; each mapping in cross-attention alone, as in the paper, and softmax elsewhere.
"""

from __future__ import annotations

from functools import partial

import numpy

from claims import measures, rules
from claims.measures import LITTLE, SOFTMAX
from claims.record import CROSS, Corpus
from claims.rules import CLAIMS, Claim, Finding, Paper

niculae_blondel = Paper("Niculae and Blondel 2017")
# The mechanisms of section 4.2 beside softmax, and how the table names them
MAPPINGS = {
    "cross-fusedmax": "fusedmax",
    "cross-oscarmax": "oscarmax",
    "cross-sqpnormmax": "sq-pnorm-max",
    "cross-sparsemax": "sparsemax",
}
NAMES = {**MAPPINGS, SOFTMAX: "softmax"}


def _bleu(corpus: Corpus, model: str, other: str = SOFTMAX) -> Finding:
    pairs = corpus.pairs({"model": model}, {"model": other}, **LITTLE)
    return measures.compare_bleu(pairs, rules.within, limit=1)


for _model, _name in MAPPINGS.items():
    CLAIMS[f"niculae_blondel.bleu.{_model}"] = Claim(
        niculae_blondel.name,
        f"{niculae_blondel.name}, 4.2",
        f"{_name} in cross-attention is within 1 BLEU of softmax.",
        f"BLEU of the test set, {_name} against softmax; small models",
        partial(_bleu, model=_model),
    )


@niculae_blondel.claim("4.2", "All attention mechanisms are within 1 BLEU of the best mechanism")
def best(corpus: Corpus) -> Finding:
    """BLEU of the test set, each mechanism against the one with the least validation loss; the best
    on the test set would owe its place to that set's chance."""
    losses = {
        model: float(numpy.mean([min(run.losses) for run in corpus.of(model=model, **LITTLE)]))
        for model in NAMES
    }
    least = min(losses, key=losses.__getitem__)
    others = [model for model in NAMES if model != least]
    found = rules.several(
        {f"{NAMES[model]} against {NAMES[least]}": _bleu(corpus, model, least) for model in others}
    )
    values = f"{found.values}; least validation loss {losses[least]:.3f}"
    return Finding(found.decision, values, found.test)


def _groups(corpus: Corpus, model: str, weight: str) -> Finding:
    """Whether a structured mapping makes groups of equal weight that the others do not make."""
    measure = measures.mean_of([CROSS], "equal_weights", weight)
    found = {}
    for other in ("cross-sparsemax", SOFTMAX):
        pairs = corpus.pairs({"model": model}, {"model": other}, **LITTLE)
        one = measures.more(measures.gap(pairs, measure), 0.01)
        means = " against ".join(
            f"{measures.each(runs, measure).mean():.3f}" for runs in zip(*pairs, strict=True)
        )
        values = f"{means}, difference {one.values}"
        found[f"against {NAMES[other]}"] = Finding(one.decision, values, one.test)
    return rules.several(found)


@niculae_blondel.claim(
    "1 and 4.2",
    "Fusedmax gives equal weight to segments of neighbouring words, as softmax and sparsemax never do",
)
def segments(corpus: Corpus) -> Finding:
    """Share of a step's attention on runs of neighbouring tokens of exactly equal weight, mean over
    heads of cross-attention; small models; up to 0.01 is of no importance."""
    return _groups(corpus, "cross-fusedmax", "run_weight")


@niculae_blondel.claim(
    "3.2 and 4.2",
    "Oscarmax gives equal weight to groups of words, wherever they are, as softmax and sparsemax "
    "never do",
)
def clusters(corpus: Corpus) -> Finding:
    """Share of a step's attention on tokens in groups, side by side or apart, of exactly equal
    weight, mean over heads of cross-attention; small models; up to 0.01 is of no importance."""
    return _groups(corpus, "cross-oscarmax", "cluster_weight")


@niculae_blondel.claim("2, figure 2", "All mappings but softmax leave words out")
def sparse(corpus: Corpus) -> Finding:
    """Share of weights of exactly zero in cross-attention, mean over heads; small models; up to 0.05
    is of no importance."""
    density = measures.mean_of([CROSS], "density")
    zeros = {
        name: 1 - measures.each(corpus.of(model=model, **LITTLE), density)
        for model, name in MAPPINGS.items()
    }
    return rules.several({name: measures.more(shares, 0.05) for name, shares in zeros.items()})
