"""What the papers leave open: whether learning α pays, what it depends on, and what sparsity speeds up."""

from __future__ import annotations

from dataclasses import replace

import numpy
from scipy import stats

from claims import measures, record, rules, statistics, words
from claims.correia import trajectories
from claims.measures import FIXED, LEARNED, LITTLE, PLAIN, SOFTMAX
from claims.record import ATTENTIONS, Corpus, NotInRecord, Run
from claims.rules import HOLDS, LEVEL, UNDECIDED, Decision, Finding, Paper

beyond = Paper("beyond the papers")
EQUAL_TIME = 0.1  # timings of a shared machine differ as much


def _gain(run: Run) -> float:
    return -min(run.losses)


@beyond.claim("", "Learned α is better than 1.5-entmax at equal time")
def equal_time(corpus: Corpus) -> Finding:
    """Best validation loss of 1.5-entmax less that of learned α, bits a token (up to 0.01 is of no
    importance), and BLEU of learned α less that of 1.5-entmax (up to 0.1); both have to say so. Both
    are trained in full, each with a rate that falls to 0 at its own end."""
    wanted = {"model": LEARNED, "role": record.EQUALTIME}
    pairs = corpus.pairs(wanted, {"model": FIXED, "role": record.TRAINED}, size=record.LARGE)
    timed = [
        measures.timed_run(corpus, model=model, role=record.TRAINED) for model in (LEARNED, FIXED)
    ]
    pace = float(numpy.median(measures.ratios(corpus, measures.TRAINING, *timed)))
    for one, other in pairs:
        expected = pace * other.updates
        if abs(one.updates - expected) > EQUAL_TIME * expected:
            had = f"{one.run} had {one.updates} updates"
            raise record.NothingToJudge(
                f"{had}, and in the time of {other.run} it would be {expected:.0f}"
            )
    found = rules.several(
        {
            "loss": measures.more(measures.gap(pairs, _gain), 0.01, digits=4),
            "BLEU": measures.compare_bleu(pairs, rules.more_than, margin=0.1),
        }
    )
    one, other = pairs[0]
    updates = f"{one.updates} updates take as long as the {other.updates} of 1.5-entmax"
    return replace(found, values=f"{found.values}; {updates}")


@beyond.claim("", "Learned α is better than 1.5-entmax at equal updates")
def equal_updates(corpus: Corpus) -> Finding:
    """Best validation loss of 1.5-entmax less that of learned α, bits a token; up to 0.01 is of no
    importance; the large size decides."""
    found = {}
    for name, size in (("large", PLAIN), ("small", LITTLE)):
        try:
            pairs = corpus.pairs({"model": LEARNED}, {"model": FIXED}, **size)
        except NotInRecord:
            if name == "large":
                raise
            continue
        measures.require_equal_updates(pairs)
        found[name] = measures.more(measures.gap(pairs, _gain), 0.01, digits=4)
    return replace(rules.several(found), decision=found["large"].decision)


@beyond.claim(
    "where Correia et al. 2019, 5.1, say that the start does not predetermine it",
    "Which heads have the higher α at the end depends on where α started at random",
)
def alpha_start(corpus: Corpus) -> Finding:
    """Spearman's correlation of a head's α at the start and at the end, mean over attentions; up to
    0.3 is of no importance."""
    rows = []
    for run in corpus.of(model=LEARNED, **PLAIN):
        _, ways = trajectories(run)
        for attention in ATTENTIONS:
            own = [way for (name, _, _), way in sorted(ways.items()) if name == attention]
            start, end = [way[0] for way in own], [way[-1] for way in own]
            rows.append(stats.spearmanr(start, end, alternative="greater"))
    # Of each attention and seed
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


@beyond.claim("", "Pruning to 24 of 72 heads costs learned α as much BLEU as softmax")
def pruning_costs(corpus: Corpus) -> Finding:
    """BLEU of pruned less continued, of learned α less of softmax; within 0.5."""
    return measures.difference_of_pruning(corpus, rules.within, limit=0.5)


def _faster_than_softmax(corpus: Corpus, what: str) -> Finding:
    def judge(model: str) -> Finding:
        run, softmax = (
            measures.timed_run(corpus, model=one, role=record.TRAINED) for one in (model, SOFTMAX)
        )
        timed = next(one for one in (corpus.speed or {})["models"] if one["run"] == run.run)
        density = ", ".join(words.number(timed["density"][attention]) for attention in ATTENTIONS)
        return replace(measures.faster(corpus, what, run, softmax, margin=0.02), test=density)

    found = measures.of_models((FIXED, measures.SPARSEMAX, LEARNED), judge)
    test = f"interval over rounds; densities of encoder, decoder, cross: {found.test}"
    return replace(found, test=test)


@beyond.claim(
    "",
    "Sparse attention translates faster here than softmax, which has no kernel for a step of decoding",
)
def speed_of_translation(corpus: Corpus) -> Finding:
    """Sentences a second, those of softmax being 1; 2 % is of no importance."""
    return _faster_than_softmax(corpus, measures.TRANSLATION)


@beyond.claim("", "Sparse attention makes training faster than softmax")
def speed_of_training(corpus: Corpus) -> Finding:
    """Updates a second, those of softmax being 1; 2 % is of no importance."""
    return _faster_than_softmax(corpus, measures.TRAINING)


@beyond.claim("", "A model pruned to 24 of 72 heads translates faster than the whole one")
def speed_of_pruned(corpus: Corpus) -> Finding:
    """Sentences a second, those of the whole model being 1; 2 % is of no importance."""

    def judge(model: str) -> Finding:
        pruned = measures.timed_run(corpus, model=model, role=record.PRUNED, budget=measures.ALL)
        whole = measures.timed_run(corpus, model=model, role=record.TRAINED)
        return measures.faster(corpus, measures.TRANSLATION, pruned, whole, margin=0.02)

    return measures.of_models((SOFTMAX, LEARNED), judge)
