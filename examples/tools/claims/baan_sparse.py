"""Baan et al. 2019, *Understanding Multi-Head Attention in Abstractive Summarization*, sections 6.2 and 6.3.

The paper is about summaries and ROUGE; here its claims are held against translation and BLEU.
"""

from __future__ import annotations

import numpy

from claims.bleu import difference_of_differences
from claims.heads import BLEU, removals
from claims.judging import (
    ENTMAX,
    SMALL_SHARE,
    SOFTMAX,
    SPARSEMAX,
    compare_bleu,
    existing,
    loses_at_most,
    numbers_of,
    over_heads,
    p_of_sides,
)
from claims.pruned import ALL, BUDGETS, compare_pruned
from claims.record import (
    CONTINUED,
    CROSS,
    ENCODER_SELF,
    LARGE,
    SMALL,
    TRAINED,
    Corpus,
    NotInRecord,
    Run,
)
from claims.strata import Draw, chosen_more_often
from claims.verdicts import LEVEL, Claim, Finding, claim, more_than
from claims.words import of_bootstrap, over_seeds

PAPER = "Baan et al. 2019"
SPARSE_ENCODER = "sparse-encoder"
LIMIT = 0.5  # BLEU; the paper's sparse encoder loses 0.03, 0.45 and 0.36 points of ROUGE
ZEROS = 0.97
# The paper leaves out decoder-self, "its attention spans increase"
ATTENTIONS_OF_PAPER = (ENCODER_SELF, CROSS)


@claim(
    Claim(
        "baan-sparse-encoder",
        f"{PAPER}, 6.2.1",
        "Sparsemax in the encoder does not affect performance: it loses little.",
    )
)
def _sparseencoder_of(corpus: Corpus) -> Finding:
    compared = compare_bleu(
        corpus, {"model": SPARSE_ENCODER}, {"model": SOFTMAX}, size=SMALL, role=TRAINED
    )
    decision = loses_at_most(compared, LIMIT)
    return Finding(
        f"BLEU of the test set, sparsemax in encoder-self and softmax elsewhere against softmax; a "
        f"loss of {LIMIT:g} is little; small models",
        compared.values,
        compared.test,
        decision.verdict,
        decision.why,
        compared.numbers,
    )


@claim(
    Claim(
        "baan-zeros",
        f"{PAPER}, 6.2.1",
        "97 % of the weights of sparsemax heads in the encoder are zero.",
    )
)
def _zeros(corpus: Corpus) -> Finding:
    runs = corpus.need(model=SPARSE_ENCODER, size=SMALL, role=TRAINED)
    zeros = [
        1 - float(numpy.mean([head.value("density") for head in run.each_head(ENCODER_SELF)]))
        for run in runs
    ]
    decision = more_than([value - ZEROS for value in zeros], against=f"{ZEROS:g}")
    return Finding(
        "share of weights of exactly zero in encoder-self, mean over heads and sentences; sparsemax "
        "there, softmax elsewhere; small models",
        over_seeds(zeros, digits=3),
        f"t interval over seeds, of what is above {ZEROS:g}",
        decision.verdict,
        f"{decision.why}; of the paper's texts of 400 words, 3 % are twelve words, but of a sentence "
        "here about one",
        {"zeros": float(numpy.mean(zeros))},
    )


@claim(
    Claim(
        "baan-sparse-removal",
        f"{PAPER}, 6.2.1",
        "Of sparse attention, more single heads matter significantly than of softmax.",
    )
)
def _sparse_removal(corpus: Corpus) -> Finding:
    pairs = corpus.pairs({"model": ENTMAX}, {"model": SOFTMAX}, size=SMALL, role=TRAINED)
    draws = []
    for sparse, dense in pairs:
        ours, theirs = (
            [harm.p < LEVEL for harm in removals(run, BLEU).values()] for run in (sparse, dense)
        )
        significant = sum(ours) + sum(theirs)
        draws.append(Draw(sparse.seed, len(ours) + len(theirs), len(ours), significant, sum(ours)))
    tested = existing(chosen_more_often(draws), "the models have no heads")
    decision = over_heads(tested, SMALL_SHARE)
    return Finding(
        "share of heads whose removal alone changes BLEU significantly (after Holm), learned α less "
        "softmax; small models",
        f"{over_seeds(tested.values, signed=True)}; learned α "
        f"{', '.join(f'{draw.both} of {draw.marked}' for draw in draws)}; softmax "
        f"{', '.join(f'{draw.chosen - draw.both} of {draw.heads - draw.marked}' for draw in draws)}",
        f"Fisher's exact test, one-sided, counts of seeds added up: {p_of_sides(tested)}",
        decision.verdict,
        decision.why,
        numbers_of(tested),
    )


def _more_interpretable(corpus: Corpus, measure: str, what: str, margin: float) -> Finding:
    pairs = corpus.pairs({"model": SPARSEMAX}, {"model": SOFTMAX}, size=LARGE, role=TRAINED)

    def mean(run: Run) -> float:
        heads = run.each_head(*ATTENTIONS_OF_PAPER)
        return float(numpy.mean([head.value(measure) for head in heads]))

    means = [(mean(sparse), mean(dense)) for sparse, dense in pairs]
    differences = [sparse - dense for sparse, dense in means]
    decision = more_than(differences, margin=margin)
    sparse, dense = numpy.mean(means, axis=0)
    return Finding(
        f"{what}, mean over heads of encoder-self and cross, sparsemax less softmax; {LARGE}",
        f"{sparse:.3f} against {dense:.3f}; difference "
        f"{over_seeds(differences, digits=3, signed=True)}",
        f"t interval over seeds; up to {margin:g} is of no importance",
        decision.verdict,
        decision.why,
        {"difference": float(numpy.mean(differences))},
    )


@claim(
    Claim(
        "baan-sparse-position",
        f"{PAPER}, 8",
        "Heads of sparsemax score higher on relative position than those of softmax.",
    )
)
def _sparse_position(corpus: Corpus) -> Finding:
    what = "share of the queries whose largest weight is on a neighbour"
    return _more_interpretable(corpus, "relative_position", what, 0.02)


@claim(
    Claim(
        "baan-sparse-tags",
        f"{PAPER}, 6.2.1",
        "Heads of sparsemax specialize more in parts of speech than those of softmax.",
    )
)
def _sparse_tags(corpus: Corpus) -> Finding:
    what = (
        "divergence of the parts of speech that are looked at from those of the sentence (POS-KL)"
    )
    return _more_interpretable(corpus, "pos_kl", what, 0.02)


@claim(
    Claim(
        "baan-sparse-pruned",
        f"{PAPER}, 6.3.1",
        "Sparse attention loses less by pruning than softmax: even more of its heads can be pruned.",
    )
)
def _sparse_pruned(corpus: Corpus) -> Finding:
    changes = {
        model: {
            pair[0].seed: pair
            for pair in compare_pruned(corpus, model, ALL, {"role": CONTINUED}).pairs
        }
        for model in (ENTMAX, SOFTMAX)
    }
    seeds = sorted(changes[ENTMAX].keys() & changes[SOFTMAX].keys())
    if not seeds:
        raise NotInRecord("no seed has pruned models of both")
    both = [[changes[model][seed] for seed in seeds] for model in (ENTMAX, SOFTMAX)]
    differences, sampled = difference_of_differences(*both)
    sparse, dense = ([pruned.bleu - whole.bleu for pruned, whole in pairs] for pairs in both)
    decision = more_than(differences, sampled, margin=0.1)
    return Finding(
        f"what BLEU changes by {BUDGETS[ALL]} against the continued baseline, learned α less softmax",
        f"{over_seeds(differences, signed=True)}; learned α "
        f"{over_seeds(sparse, signed=True)}, softmax "
        f"{over_seeds(dense, signed=True)}",
        f"t interval over seeds; {of_bootstrap(sampled)}; up to 0.1 is of no importance",
        decision.verdict,
        decision.why,
        {"difference": float(numpy.mean(differences)), "p": sampled.p},
    )
