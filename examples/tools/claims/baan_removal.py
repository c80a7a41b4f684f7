"""Baan et al. 2019, *Understanding Multi-Head Attention in Abstractive Summarization*, sections 5.5 and 6.1.

The paper is about summaries and ROUGE; here its claims are held against translation and BLEU.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy

from claims.heads import BLEU, LOSS, encoder_roles, removals, role_score, without_roles
from claims.judging import (
    PERMUTED,
    SMALL_CORRELATION,
    SMALL_SUPERIORITY,
    as_correlation,
    as_share,
    claim_of_each,
    existing,
    numbers_of,
    over_heads,
    p_of_sides,
)
from claims.pruned import ALL, BUDGETS, is_left, pruned_with_baseline, survivors
from claims.record import ATTENTIONS, CROSS, ENCODER_SELF, LARGE, SMALL, TRAINED, Corpus, Head, Run
from claims.strata import HeadStatistic, Stratum, rank_correlation, strata_of
from claims.verdicts import FAILS, HOLDS, LEVEL, UNDECIDED, Claim, Decision, Finding, more_than
from claims.words import name_of, number

PAPER = "Baan et al. 2019"
# From here on section 5.3 names a head of the encoder by its relative position
RELATIVE_POSITION = 0.8
# The paper leaves out decoder-self, "its attention spans increase"
ATTENTIONS_OF_PAPER = (ENCODER_SELF, CROSS)


def _significant(run: Run, score: str) -> dict[str, bool]:
    """Of each head whether its removal changes the score, after Holm's correction."""
    return {name: harm.p < LEVEL for name, harm in removals(run, score).items()}


def _no_head_matters(corpus: Corpus, model: str, size: str, score: str) -> Finding:
    runs = corpus.need(model=model, size=size, role=TRAINED)
    found = {run.seed: _significant(run, score) for run in runs}
    shares = [float(numpy.mean(list(heads.values()))) for heads in found.values()]
    # A trial may have left out an attention
    by_attention = {
        attention: float(numpy.mean(removed))
        for attention in ATTENTIONS
        if (
            removed := [
                significant
                for heads in found.values()
                for name, significant in heads.items()
                if name.startswith(f"{attention}:")
            ]
        )
    }
    return Finding(
        f"heads whose removal alone changes {'the loss' if score == LOSS else score.upper()} of the "
        f"test set; {name_of(model)}, {size}",
        f"share of heads {as_share(shares)}; "
        + ", ".join(f"{name} {share:.2f}" for name, share in by_attention.items())
        + f"; the most harmful costs {_most_harmful(runs, score)}",
        f"of each head the {'paired t-test' if score == LOSS else 'paired bootstrap'} over sentences, "
        f"after Holm: p < {LEVEL}",
        *_none_matters(shares, _least_p(runs, score)),
        {"share": float(numpy.mean(shares))},
    )


def _most_harmful(runs: list[Run], score: str) -> str:
    """What the model of each seed loses most by one head, with its unit."""
    losses = [max(harm.loss for harm in removals(run, score).values()) for run in runs]
    unit = "nats a token" if score == LOSS else score.upper()
    return f"{', '.join(number(loss) for loss in losses)} {unit}"


def _least_p(runs: list[Run], score: str) -> float:
    """The smallest p after Holm's correction that the bootstrap could give; 0 of a t-test."""
    if score == LOSS:
        return 0.0
    samples = (runs[0].ablation or {}).get("significance", {}).get("bootstrap") or 0
    return len(removals(runs[0], score)) / (samples + 1)


def _none_matters(shares: list[float], least_p: float) -> tuple[str, str]:
    """Verdict and reason: whether no head's removal is significant."""
    such = "a head whose removal makes a significant difference"
    if len(shares) < 2:
        decision = more_than(shares)
    elif all(shares):
        decision = Decision(FAILS, f"each of {len(shares)} seeds has {such}")
    elif any(shares):
        having = sum(1 for share in shares if share)
        decision = Decision(UNDECIDED, f"{having} of {len(shares)} seeds have {such}")
    elif least_p >= LEVEL:
        limit = f"p of the bootstrap cannot be below {least_p:.3f} after Holm's correction"
        decision = Decision(UNDECIDED, f"no seed has {such}, but {limit}")
    else:
        decision = Decision(HOLDS, f"none of {len(shares)} seeds has {such}")
    return decision.verdict, decision.why


@claim_of_each(
    Claim(
        "baan-removal-bleu",
        f"{PAPER}, 5.5",
        "No single head that is removed makes a significant difference in the score of the output",
    )
)
def _removal_bleu(corpus: Corpus, model: str) -> Finding:
    return _no_head_matters(corpus, model, SMALL, BLEU)


@claim_of_each(
    Claim(
        "baan-removal-loss",
        f"{PAPER}, 5.5, by the loss",
        "No single head that is removed makes a significant difference in the loss",
    )
)
def _removal_loss(corpus: Corpus, model: str) -> Finding:
    return _no_head_matters(corpus, model, LARGE, LOSS)


def _specialised(
    runs: list[Run], attentions: tuple[str, ...], score: Callable[[Head, Run], float]
) -> HeadStatistic | None:
    """The correlation of a score with the loss without the head, within attentions."""
    strata: list[Stratum] = []
    for run in runs:
        harms = removals(run, LOSS)
        heads = [head for head in run.each_head(*attentions) if head.name in harms]
        rows = [(head.attention, score(head, run), harms[head.name].loss) for head in heads]
        strata.extend(strata_of(run.seed, rows))
    return rank_correlation(strata)


@claim_of_each(
    Claim(
        "baan-specialised",
        f"{PAPER}, 5.5",
        "Heads that seem to perform an interpretable task matter no more than others when they are "
        "removed",
    )
)
def _interpretable_heads(corpus: Corpus, model: str) -> Finding:
    runs = corpus.need(model=model, size=LARGE, role=TRAINED)
    tested = existing(
        _specialised(runs, (ENCODER_SELF,), role_score), "all heads are alike, or cost the same"
    )
    more = over_heads(tested, SMALL_CORRELATION)
    if not any(map(encoder_roles, runs)):
        more = Decision(UNDECIDED, without_roles(runs))
    # The claim denies what is tested
    verdict = {HOLDS: FAILS, FAILS: HOLDS}.get(more.verdict, more.verdict)
    return Finding(
        "Spearman's correlation of the loss without a head with how near the head is to its nearest "
        f"role (1: it has one); encoder-self, {name_of(model)}, {LARGE}",
        as_correlation(tested.values),
        f"of a correlation above 0, one-sided; {PERMUTED}: {p_of_sides(tested)}",
        verdict,
        f"of the correlation: {more.why}",
        numbers_of(tested),
    )


def _relative_position(head: Head, run: Run) -> float:
    return head.value("relative_position")


def _has_relative_position(runs: list[Run]) -> int:
    """How many heads look at neighbours, by the paper's threshold."""
    return sum(
        _relative_position(head, run) >= RELATIVE_POSITION
        for run in runs
        for head in run.each_head(*ATTENTIONS_OF_PAPER)
    )


def _only_with_such_heads(decision: Decision, heads: int) -> Decision:
    if heads:
        return decision
    return Decision(
        UNDECIDED, f"no head looks at neighbours for {100 * RELATIVE_POSITION:.0f} % of the queries"
    )


@claim_of_each(
    Claim(
        "baan-relative-position",
        f"{PAPER}, 6.1.1 and 8",
        "Heads that look at neighbouring tokens are those that matter most when they are removed",
    )
)
def _relative_position_matters(corpus: Corpus, model: str) -> Finding:
    runs = corpus.need(model=model, size=LARGE, role=TRAINED)
    tested = existing(
        _specialised(runs, ATTENTIONS_OF_PAPER, _relative_position),
        "all heads look at neighbours as often, or cost the same",
    )
    number = _has_relative_position(runs)
    decision = _only_with_such_heads(over_heads(tested, SMALL_CORRELATION), number)
    return Finding(
        "Spearman's correlation of the loss without a head with how often it looks at a neighbour, "
        f"within encoder-self and cross, mean of both; {name_of(model)}, {LARGE}",
        f"{as_correlation(tested.values)}; {number} heads of {len(runs)} models "
        f"do so for {100 * RELATIVE_POSITION:.0f} % of the queries",
        f"one-sided; {PERMUTED}: {p_of_sides(tested)}",
        decision.verdict,
        decision.why,
        {**numbers_of(tested), "heads": float(number)},
    )


@claim_of_each(
    Claim(
        "baan-relative-position-kept",
        f"{PAPER}, 6.1.1 and 6.3.1",
        "Heads that look at neighbouring tokens remain after pruning",
    )
)
def _relative_position_kept(corpus: Corpus, model: str) -> Finding:
    pairs = pruned_with_baseline(corpus, model, ALL)
    tested = survivors(pairs, ATTENTIONS_OF_PAPER, lambda head: head.attention, _relative_position)
    having = remaining = 0
    for pruned, baseline in pairs:
        such = [
            head
            for head in baseline.each_head(*ATTENTIONS_OF_PAPER)
            if _relative_position(head, baseline) >= RELATIVE_POSITION
        ]
        having, remaining = having + len(such), remaining + sum(map(is_left(pruned), such))
    decision = _only_with_such_heads(over_heads(tested, SMALL_SUPERIORITY), having)
    return Finding(
        "probability that a head that is left looked at a neighbour more often than one that is "
        f"removed (AUC), within encoder-self and cross; {BUDGETS[ALL]}, {name_of(model)}",
        f"{as_share(tested.values)}; {remaining} of {having} heads are left that did so "
        f"for {100 * RELATIVE_POSITION:.0f} % of the queries",
        f"Mann-Whitney statistic, one-sided; {PERMUTED}: {p_of_sides(tested)}",
        decision.verdict,
        decision.why,
        {**numbers_of(tested), "heads": float(having), "left": float(remaining)},
    )
