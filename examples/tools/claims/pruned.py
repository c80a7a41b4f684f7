"""Pruned models beside those they were pruned from: what several papers' claims compare."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from claims.judging import Compared, compare_bleu, existing, loses_at_most
from claims.record import (
    CONTINUED,
    LARGE,
    PRUNED,
    TRAINED,
    Corpus,
    Head,
    NothingToJudge,
    NotInRecord,
    Run,
)
from claims.strata import HeadStatistic, Stratum, strata_of, superiority
from claims.verdicts import Finding
from claims.words import name_of

ALL, HALF, ENCODER = "all24", "all36", "encoder4"
# What is left of how many heads, in words
BUDGETS = {ALL: "24 of 72 heads", HALF: "36 of 72 heads", ENCODER: "4 of 24 encoder heads"}
# Numbers of updates that differ by this share are taken for the same
EQUAL_UPDATES = 0.05


def pruned_with_baseline(corpus: Corpus, model: str, budget: str) -> list[tuple[Run, Run]]:
    """Each pruned model with the one that it was pruned from, by seed.

    Raises:
        NotInRecord: there is none.
    """
    pairs = corpus.pairs(
        {"role": PRUNED, "budget": budget}, {"role": TRAINED}, model=model, size=LARGE
    )
    for pruned, _ in pairs:
        if pruned.kept is None:
            raise NotInRecord(f"the record does not say which heads {pruned.run} kept")
    return pairs


def is_left(pruned: Run) -> Callable[[Head], bool]:
    """Whether a head of the baseline is in the pruned model."""
    left = {head.name for head in pruned.each_head()}
    return lambda head: head.name in left


def compare_pruned(corpus: Corpus, model: str, budget: str, against: Mapping[str, str]) -> Compared:
    """BLEU of pruned models and of others that took as many updates.

    Args:
        against: what :meth:`Corpus.of` takes, such as ``{"role": CONTINUED}``.

    Raises:
        NotInRecord: no seed has both.
        NothingToJudge: the numbers of updates differ.
    """
    pruned = {"role": PRUNED, "budget": budget}
    compared = compare_bleu(corpus, pruned, against, model=model, size=LARGE)
    for first, second in compared.pairs:
        if abs(first.updates - second.updates) > EQUAL_UPDATES * second.updates:
            raise NothingToJudge(
                f"{first.run} had {first.updates} updates and {second.run} {second.updates}: what "
                "they differ in may be that"
            )
    return compared


def survivors(
    pairs: Sequence[tuple[Run, Run]],
    attentions: Sequence[str],
    stratum: Callable[[Head], Hashable],
    score: Callable[[Head, Run], float],
) -> HeadStatistic:
    """How often a head that is left had more of a score than one that is removed (AUC).

    Args:
        pairs: of :func:`pruned_with_baseline`.
        attentions: whose heads are compared.
        stratum: of a head: it is compared with the others of its own.
        score: of a head and its run, the baseline.

    Raises:
        NothingToJudge: of each stratum, all heads are left, or none.
    """
    strata: list[Stratum] = []
    for pruned, baseline in pairs:
        left = is_left(pruned)
        heads = [
            (stratum(head), score(head, baseline), float(left(head)))
            for head in baseline.each_head(*attentions)
        ]
        strata.extend(strata_of(baseline.seed, heads))
    reason = "pruning left all of the heads that are compared with each other, or none"
    return existing(superiority(strata), reason)


def loss_by_pruning(corpus: Corpus, model: str, budget: str, limit: float) -> Finding:
    """Whether pruned models lose no more BLEU than a limit against the continued baseline."""
    compared = compare_pruned(corpus, model, budget, {"role": CONTINUED})
    decision = loses_at_most(compared, limit)
    return Finding(
        f"BLEU of the test set, {BUDGETS[budget]} against the baseline trained on for as many "
        f"updates; {name_of(model)}, {LARGE}",
        compared.values,
        compared.test,
        decision.verdict,
        decision.why,
        compared.numbers,
    )
