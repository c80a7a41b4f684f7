"""What the papers leave open: what a learned α depends on, and what sparsity speeds up."""

from __future__ import annotations

import numpy
from scipy import stats

from claims import measures, record, rules, statistics, words
from claims.alpha import trajectories
from claims.measures import FIXED, LEARNED, PLAIN, SOFTMAX, timed_run
from claims.record import ATTENTIONS, Corpus
from claims.rules import HOLDS, LEVEL, UNDECIDED, Decision, Finding


def alpha_start(corpus: Corpus, model: str) -> Finding:
    rows = []
    for run in corpus.of(model=model, **PLAIN):
        ways = sorted(trajectories(run)[1].items())
        for attention in ATTENTIONS:
            own = [way for (name, _, _), way in ways if name == attention]
            # If α rises, it starts at 1 in all heads, and then has the order of what was drawn
            start = [next((value for value in way if value > 1), 1) for way in own]
            end = [way[-1] for way in own]
            rows.append(stats.spearmanr(start, end, alternative="greater"))
    # Shapes (attentions, seeds)
    correlations, p = numpy.array(rows).reshape(-1, len(ATTENTIONS), 2).T
    means = correlations.mean(axis=0)
    decision = rules.more_than(means, margin=0.3)
    p_all = statistics.combined_p(p.ravel())
    if decision.verdict == HOLDS and p_all >= LEVEL:
        decision = Decision(UNDECIDED, "seeds agree, but over heads it is not significant")
    corrected = map(words.p_value, statistics.holm([statistics.combined_p(row) for row in p]))
    values = dict(zip(ATTENTIONS, map(words.as_correlation, correlations), strict=True))
    return Finding(
        decision,
        f"{words.as_correlation(means)}; {words.listed(values)}",
        f"interval over seeds; over heads, seeds combined, {words.p_value(p_all)}; of each attention, "
        f"Holm: {words.listed(dict(zip(ATTENTIONS, corrected, strict=True)))}",
    )


@measures.of_each((FIXED, measures.SPARSEMAX, LEARNED))
def _faster_and_densities(corpus: Corpus, model: str, what: str) -> Finding:
    run, softmax = timed_run(corpus, model), timed_run(corpus, SOFTMAX)
    found = measures.faster(corpus, what, run, softmax, margin=0.02)
    return found._replace(test=measures.of_attentions([run], "density"))


def faster_than_softmax(corpus: Corpus, what: str) -> Finding:
    found = _faster_and_densities(corpus, what=what)
    test = f"interval over rounds; densities of encoder, decoder, cross: {found.test}"
    return found._replace(test=test)


@measures.of_each((SOFTMAX, LEARNED))
def speed_of_pruned(corpus: Corpus, model: str) -> Finding:
    pruned = timed_run(corpus, model, record.PRUNED, budget=measures.ALL)
    whole = timed_run(corpus, model)
    return measures.faster(corpus, measures.TRANSLATION, pruned, whole, margin=0.02)
