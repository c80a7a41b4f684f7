"""Baan et al. 2019, *Understanding Multi-Head Attention in Abstractive Summarization*.

The paper is about summaries and ROUGE; here its claims are held against translation and BLEU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from claims import measures, rules, statistics, words
from claims.measures import ALL, LEARNED, LITTLE, PLAIN, SOFTMAX
from claims.record import ATTENTIONS, CROSS, ENCODER_SELF, Corpus, Head, NotInRecord, Run
from claims.roles import encoder_roles, role_score, without_roles
from claims.rules import HOLDS, LEVEL, UNDECIDED, Decision, Finding, Paper

baan = Paper("Baan et al. 2019")
of_each = Paper("Baan et al. 2019", *measures.OF_EACH)
RELATIVE_POSITION = 0.8  # from here on section 5.3 names a head by its relative position
# The paper leaves out decoder-self, "its attention spans increase"
OF_PAPER = (ENCODER_SELF, CROSS)
LOSS, BLEU = "loss", "bleu"


def removals(run: Run, score: str) -> Mapping[str, Mapping[str, Any]]:
    """What changes without each head, and p after Holm, by the head's name."""
    found = {
        removal["heads"][0]: removal[score]
        for removal in (run.ablation or {}).get("removals", [])
        if len(removal["heads"]) == 1 and (removal.get(score) or {}).get("p_holm") is not None
    }
    if not found:
        raise NotInRecord(f"the record has no ablation of {run.run} with {score}")
    return found


def _no_head_matters(runs: Sequence[Run], score: str, sign: int, unit: str) -> Finding:
    found = [removals(run, score) for run in runs]
    shares = [measures.each(list(own.values()), _matters).mean() for own in found]
    parts = []
    for attention in ATTENTIONS:
        of_it = [one for own in found for name, one in own.items() if name.startswith(attention)]
        if of_it:
            parts.append(f"{attention} {measures.each(of_it, _matters).mean():.2f}")
    most = [words.number(max(sign * one["change"] for one in own.values())) for own in found]
    values = (
        f"share of heads {words.as_share(shares)}; {', '.join(parts)}; the most harmful costs "
        f"{', '.join(most)} {unit}"
    )
    decision = rules.negated(
        rules.in_each(shares, "a head whose removal makes a significant difference")
    )
    return Finding(decision, values, f"of each head, over sentences, after Holm: p < {LEVEL}")


def _matters(removal: Mapping[str, Any]) -> bool:
    return removal["p_holm"] < LEVEL


@of_each.claim(
    "5.5",
    "No single head that is removed makes a significant difference in the score of the output",
)
def removal_bleu(corpus: Corpus, model: str) -> Finding:
    """Heads whose removal alone changes BLEU of the test set, by the paired bootstrap; small."""
    runs = corpus.of(model=model, **LITTLE)
    found = _no_head_matters(runs, BLEU, -1, "BLEU")
    samples = (runs[0].ablation or {})["significance"]["bootstrap"]
    # The smallest p that the bootstrap could give
    least = len(removals(runs[0], BLEU)) / (samples + 1)
    if found.decision.verdict != HOLDS or least < LEVEL:
        return found
    limit = f"p of the bootstrap cannot be below {least:.3f} after Holm's correction"
    return replace(found, decision=Decision(UNDECIDED, f"{found.decision.why}, but {limit}"))


@of_each.claim(
    "5.5, by the loss", "No single head that is removed makes a significant difference in the loss"
)
def removal_loss(corpus: Corpus, model: str) -> Finding:
    """Heads whose removal alone changes the loss of the test set, by the paired t-test; large."""
    return _no_head_matters(corpus.of(model=model, **PLAIN), LOSS, 1, "nats a token")


def _costs(
    runs: Sequence[Run], attentions: Iterable[str], score: Callable[[Head], float]
) -> Finding:
    """The correlation of a score with the loss without the head, within attentions."""
    harms = {run.seed: removals(run, LOSS) for run in runs}
    heads = [
        head for run in runs for head in run.each_head(*attentions) if head.name in harms[run.seed]
    ]

    def harm(head: Head) -> float:
        return harms[head.run.seed][head.name]["change"]

    tested = statistics.rank_correlation(
        statistics.strata_of(heads, lambda head: head.attention, score, harm)
    )
    missing = "all heads are alike, or cost the same"
    return measures.of_heads(tested, missing, measures.SMALL_CORRELATION, words.as_correlation)


@of_each.claim(
    "5.5",
    "Heads that seem to perform an interpretable task matter no more than others when they are removed",
)
def interpretable(corpus: Corpus, model: str) -> Finding:
    """Spearman's correlation of the loss without a head with how near the head is to its nearest
    role (1: it has one), which has to be no higher than 0; encoder-self, large."""
    runs = corpus.of(model=model, **PLAIN)
    found = _costs(runs, [ENCODER_SELF], role_score)
    if any(map(encoder_roles, runs)):
        return replace(found, decision=rules.negated(found.decision))
    return replace(found, decision=Decision(UNDECIDED, without_roles(runs)))


def _position(head: Head) -> float:
    return head.value("relative_position")


def _of_neighbours(found: Finding, runs: Sequence[Run], left: Sequence[set[str]] = ()) -> Finding:
    """A finding on heads that look at neighbours: undecided where there is none."""
    such = [
        {head.name for head in run.each_head(*OF_PAPER) if _position(head) >= RELATIVE_POSITION}
        for run in runs
    ]
    having = sum(map(len, such))
    often = f"look at neighbours for {100 * RELATIVE_POSITION:.0f} % of the queries"
    kept = "; {} of them are left".format(
        sum(len(one & names) for one, names in zip(such, left, strict=True)) if left else ""
    )
    values = f"{found.values}; {having} heads of {len(runs)} models {often}{kept if left else ''}"
    decision = found.decision if having else Decision(UNDECIDED, f"no heads {often}")
    return Finding(decision, values, found.test)


@of_each.claim(
    "6.1.1 and 8",
    "Heads that look at neighbouring tokens are those that matter most when they are removed",
)
def position_matters(corpus: Corpus, model: str) -> Finding:
    """Spearman's correlation of the loss without a head with how often it looks at a neighbour,
    within encoder-self and cross, mean of both; large."""
    runs = corpus.of(model=model, **PLAIN)
    return _of_neighbours(_costs(runs, OF_PAPER, _position), runs)


@of_each.claim("6.1.1 and 6.3.1", "Heads that look at neighbouring tokens remain after pruning")
def position_kept(corpus: Corpus, model: str) -> Finding:
    """Probability that a head that is left looked at a neighbour more often than one that is removed
    (AUC), within encoder-self and cross; 24 of 72 heads."""
    pairs = measures.pruned_with_baseline(corpus, model, ALL)
    found = measures.survivors(pairs, OF_PAPER, lambda head: head.attention, _position)
    left = [measures.left_in(pruned) for pruned, _ in pairs]
    return _of_neighbours(found, [baseline for _, baseline in pairs], left)


@baan.claim("6.2.1", "Sparsemax in the encoder does not affect performance: it loses little")
def sparse_encoder(corpus: Corpus) -> Finding:
    """BLEU of the test set, sparsemax in encoder-self and softmax elsewhere against softmax; a loss
    of 0.5 is little (the paper's are 0.03, 0.45 and 0.36 points of ROUGE); small models."""
    pairs = corpus.pairs({"model": "sparse-encoder"}, {"model": SOFTMAX}, **LITTLE)
    return measures.compare_bleu(pairs, rules.loses_at_most, limit=0.5)


@baan.claim("6.2.1", "97 % of the weights of sparsemax heads in the encoder are zero")
def zeros(corpus: Corpus) -> Finding:
    """Share of weights of exactly zero in encoder-self, mean over heads and sentences; sparsemax
    there, softmax elsewhere; small models. Of the paper's texts of 400 words, 3 % are twelve words,
    but of a sentence here about one."""
    runs = corpus.of(model="sparse-encoder", **LITTLE)
    zeros = 1 - measures.each(runs, measures.mean_of([ENCODER_SELF], "density"))
    decision = rules.more_than(zeros - 0.97, against="0.97")
    return Finding(
        decision, words.over_seeds(zeros, 3), "interval over seeds, of what is above 0.97"
    )


@baan.claim("6.2.1", "Of sparse attention, more single heads matter significantly than of softmax")
def sparse_removal(corpus: Corpus) -> Finding:
    """Share of heads whose removal alone changes BLEU significantly (after Holm), learned α less
    softmax (Fisher's exact test); small models."""
    draws, shown = [], []
    for pair in corpus.pairs({"model": LEARNED}, {"model": SOFTMAX}, **LITTLE):
        ours, theirs = ([_matters(one) for one in removals(run, BLEU).values()] for run in pair)
        both = sum(ours)
        heads = len(ours) + len(theirs)
        draws.append(statistics.Draw(pair[0].seed, heads, len(ours), both + sum(theirs), both))
        shown.append([f"{sum(own)} of {len(own)}" for own in (ours, theirs)])
    missing = "the models have no heads"
    found = measures.of_heads(
        statistics.chosen_more_often(draws), missing, measures.SMALL_SHARE, words.signed
    )
    learned, softmax = (", ".join(column) for column in zip(*shown, strict=True))
    return replace(found, values=f"{found.values}; learned α {learned}; softmax {softmax}")


def _more_in_sparsemax(corpus: Corpus, measure: str) -> Finding:
    mean = measures.mean_of(OF_PAPER, measure)
    pairs = corpus.pairs({"model": measures.SPARSEMAX}, {"model": SOFTMAX}, **PLAIN)
    means = " against ".join(
        f"{measures.each(runs, mean).mean():.3f}" for runs in zip(*pairs, strict=True)
    )
    found = measures.more(measures.gap(pairs, mean), 0.02, digits=3)
    return replace(found, values=f"{means}; difference {found.values}")


@baan.claim("8", "Heads of sparsemax score higher on relative position than those of softmax")
def sparse_position(corpus: Corpus) -> Finding:
    """Share of the queries whose largest weight is on a neighbour, mean over heads of encoder-self
    and cross, sparsemax less softmax; large; up to 0.02 is of no importance."""
    return _more_in_sparsemax(corpus, "relative_position")


@baan.claim("6.2.1", "Heads of sparsemax specialize more in parts of speech than those of softmax")
def sparse_tags(corpus: Corpus) -> Finding:
    """Divergence of the parts of speech that are looked at from those of the sentence (POS-KL), mean
    over heads of encoder-self and cross, sparsemax less softmax; large; up to 0.02 is of no
    importance."""
    return _more_in_sparsemax(corpus, "pos_kl")


@baan.claim(
    "6.3.1",
    "Sparse attention loses less by pruning than softmax: even more of its heads can be pruned",
)
def sparse_pruned(corpus: Corpus) -> Finding:
    """What BLEU changes by 24 of 72 heads against the continued baseline, learned α less softmax; up
    to 0.1 is of no importance."""
    return measures.difference_of_pruning(corpus, rules.more_than, margin=0.1)
