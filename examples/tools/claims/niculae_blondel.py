"""Niculae and Blondel 2017, *A Regularized Framework for Sparse and Structured Neural Attention*.

Models are small. As in the paper, each mapping is only in cross-attention; the rest is softmax.
"""

from __future__ import annotations

import numpy

from claims.measures import LITTLE, SOFTMAX, bleu, each, gap, mean_of, means, more
from claims.record import CROSS, Corpus
from claims.rules import Finding, several, within

# The mechanisms of section 4.2 besides softmax, and their names in the table
MAPPINGS = {
    "cross-fusedmax": "fusedmax",
    "cross-oscarmax": "oscarmax",
    "cross-sqpnormmax": "sq-pnorm-max",
    "cross-sparsemax": "sparsemax",
}
NAMES = {**MAPPINGS, SOFTMAX: "softmax"}


def best(corpus: Corpus) -> Finding:
    losses = {
        model: float(numpy.mean([min(run.losses) for run in corpus.of(model=model, **LITTLE)]))
        for model in NAMES
    }
    least = min(losses, key=losses.__getitem__)
    others = {f"{NAMES[one]} against {NAMES[least]}": one for one in NAMES if one != least}
    found = several(
        {name: bleu(corpus, model, within, least, limit=1) for name, model in others.items()}
    )
    return found.beside(f"least validation loss {losses[least]:.3f}")


def groups(corpus: Corpus, model: str, weight: str) -> Finding:
    """Whether groups of equal weights get more attention by a structured mapping than others."""
    measure = mean_of([CROSS], "equal_weights", weight)
    found = {}
    for other in ("cross-sparsemax", SOFTMAX):
        pairs = corpus.pairs({"model": model}, {"model": other}, **LITTLE)
        one = more(gap(pairs, measure), 0.01)
        values = f"{means(pairs, measure)}, difference {one.values}"
        found[f"against {NAMES[other]}"] = one._replace(values=values)
    return several(found)


def sparse(corpus: Corpus) -> Finding:
    runs = {name: corpus.of(model=model, **LITTLE) for model, name in MAPPINGS.items()}
    density = mean_of([CROSS], "density")
    return several({name: more(1 - each(own, density), 0.05) for name, own in runs.items()})
