"""Voita et al. 2019, section 6.2: pruning of the encoder, and which of its heads are left."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from claims.heads import encoder_roles, is_positional, role_score, without_roles
from claims.judging import (
    ONE_SIDED,
    SMALL_SHARE,
    SMALL_SUPERIORITY,
    as_share,
    claim_of_each,
    existing,
    numbers_of,
    over_heads,
    p_of_sides,
)
from claims.pruned import (
    ALL,
    BUDGETS,
    ENCODER,
    is_left,
    loss_by_pruning,
    pruned_with_baseline,
    survivors,
)
from claims.record import ATTENTIONS, ENCODER_SELF, Corpus, Head, NothingToJudge, NotInRecord
from claims.strata import Draw, HeadStatistic, chosen_more_often
from claims.verdicts import FAILS, HOLDS, LEVEL, UNDECIDED, Claim, Decision, Finding, more_than
from claims.words import name_of, over_seeds

MARGIN = SMALL_SUPERIORITY  # of an AUC, from one half
PAPER = "Voita et al. 2019"


@claim_of_each(
    Claim(
        "voita-encoder-pruned",
        f"{PAPER}, 6.2.1",
        "With all but a few heads of the encoder pruned, no more than 0.25 BLEU is lost",
    )
)
def _encoder_pruned(corpus: Corpus, model: str) -> Finding:
    return loss_by_pruning(corpus, model, ENCODER, 0.25)


@claim_of_each(
    Claim(
        "voita-roles-left",
        f"{PAPER}, 6.2.2",
        "The pruned encoder has heads with all the roles that there were before",
    )
)
def _roles_left(corpus: Corpus, model: str) -> Finding:
    before, after = [], []
    for pruned, baseline in pruned_with_baseline(corpus, model, ALL):
        roles = set(encoder_roles(baseline))
        if roles:
            before.append(len(roles))
            after.append(len(roles & set(encoder_roles(pruned))))
    if not before:
        baselines = [baseline for _, baseline in pruned_with_baseline(corpus, model, ALL)]
        raise NothingToJudge(f"before pruning {without_roles(baselines)}")
    whole = [had == has for had, has in zip(before, after, strict=True)]
    if len(whole) < 2:
        decision = more_than([1.0])
    elif all(whole):
        decision = Decision(HOLDS, f"all roles are left in each of {len(whole)} seeds")
    elif not any(whole):
        decision = Decision(FAILS, f"some role is lost in each of {len(whole)} seeds")
    else:
        decision = Decision(UNDECIDED, f"all roles are left in {sum(whole)} of {len(whole)} seeds")
    return Finding(
        "roles (position −1 or +1, rare words, syntactic relations) that some encoder head has, by "
        f"the paper's thresholds; {BUDGETS[ALL]}, {name_of(model)}",
        "; ".join(f"{has} of {had} left" for had, has in zip(before, after, strict=True)),
        "counted in each seed",
        decision.verdict,
        decision.why,
        {"before": float(sum(before)), "after": float(sum(after))},
    )


def _survives(
    corpus: Corpus,
    model: str,
    attentions: Sequence[str],
    stratum: Callable[[Head], Hashable],
    measure: str,
) -> Finding:
    """Whether heads that pruning leaves had more of a measure than those that it removes.

    Beside what decides stands the same of heads of one layer, as where heads are left depends on
    the layer, and of a search in the encoder alone, where the record has it.
    """
    pairs = pruned_with_baseline(corpus, model, ALL)
    tested = survivors(pairs, attentions, stratum, lambda head, run: head.value(measure))
    within = "its layer" if measure == "relevance" else "its attention"
    found = _finding(model, ALL, tested, f"{measure} within {within}", over_heads(tested, MARGIN))
    beside = {}
    if measure != "relevance":
        beside["of heads of the same layer"] = (ALL, attentions)
    # The paper's own setting: heads of the encoder, which the others do not compete with
    beside[f"in the encoder alone, {BUDGETS[ENCODER]}, of heads of the same layer"] = (
        ENCODER,
        [ENCODER_SELF],
    )
    parts, weak = [found.values], []
    for what, (budget, among) in beside.items():
        try:
            other = survivors(
                pruned_with_baseline(corpus, model, budget),
                among,
                lambda head: (head.attention, head.layer),
                lambda head, run: head.value(measure),
            )
        except NotInRecord:
            continue
        parts.append(f"{what} {as_share(other.values)}, {p_of_sides(other)}")
        if other.greater >= LEVEL:
            weak.append(what)
    why = found.why
    if found.verdict == HOLDS and weak:
        why += f"; but chance alone might do as much {' and '.join(weak)}"
    return replace(found, values="; ".join(parts), why=why)


def _finding(
    model: str, budget: str, tested: HeadStatistic, what: str, decision: Decision
) -> Finding:
    return Finding(
        f"probability that a head that is left had more than one that is removed (AUC), of {what} in "
        f"the baseline; {BUDGETS[budget]}, {name_of(model)}",
        as_share(tested.values),
        f"Mann-Whitney statistic, {ONE_SIDED}: {p_of_sides(tested)}",
        decision.verdict,
        decision.why,
        numbers_of(tested),
    )


def _roles_survive(corpus: Corpus, model: str, budget: str) -> Finding:
    pairs = pruned_with_baseline(corpus, model, budget)
    tested = survivors(pairs, [ENCODER_SELF], lambda head: ENCODER_SELF, role_score)
    decision = over_heads(tested, MARGIN)
    if not any(encoder_roles(baseline) for _, baseline in pairs):
        baselines = [baseline for _, baseline in pairs]
        decision = Decision(UNDECIDED, f"before pruning {without_roles(baselines)}")
    what = "how near a head of the encoder was to its nearest role (1: it had one)"
    return _finding(model, budget, tested, what, decision)


@claim_of_each(
    Claim(
        "voita-roles-survive",
        f"{PAPER}, 6.2.2",
        "Specialized heads of the encoder are the last to be pruned, of all attentions together",
    )
)
def _roles_survive_all(corpus: Corpus, model: str) -> Finding:
    return _roles_survive(corpus, model, ALL)


@claim_of_each(
    Claim(
        "voita-roles-survive-encoder",
        f"{PAPER}, 6.2.2",
        "Specialized heads of the encoder are the last to be pruned, of the encoder alone",
    )
)
def _roles_survive_encoder(corpus: Corpus, model: str) -> Finding:
    return _roles_survive(corpus, model, ENCODER)


@claim_of_each(
    Claim("voita-positional-kept", f"{PAPER}, 6.2.2", "Positional heads of the encoder are kept")
)
def _positional_kept(corpus: Corpus, model: str) -> Finding:
    draws = []
    for pruned, baseline in pruned_with_baseline(corpus, model, ALL):
        left, heads = is_left(pruned), list(baseline.each_head(ENCODER_SELF))
        positional = [head for head in heads if is_positional(head)]
        draws.append(
            Draw(
                baseline.seed,
                len(heads),
                len(positional),
                sum(map(left, heads)),
                sum(map(left, positional)),
            )
        )
    tested = existing(
        chosen_more_often(draws), f"no head of the encoder of {name_of(model)} is positional"
    )
    decision = over_heads(tested, SMALL_SHARE)
    marked, both = sum(draw.marked for draw in draws), sum(draw.both for draw in draws)
    return Finding(
        f"positional heads of the baseline's encoder that are left, against its other heads; "
        f"{BUDGETS[ALL]}, {name_of(model)}",
        f"{both} of {marked} positional heads, {sum(draw.chosen for draw in draws) - both} of "
        f"{sum(draw.heads for draw in draws) - marked} others; difference of shares "
        f"{over_seeds(tested.values, signed=True)}",
        f"Fisher's exact test, one-sided, counts of seeds added up: {p_of_sides(tested)}",
        decision.verdict,
        decision.why,
        {**numbers_of(tested), "positional": float(marked), "left": float(both)},
    )


@claim_of_each(
    Claim(
        "voita-relevance-survives",
        f"{PAPER}, 1 and 6.2.2",
        "Pruning agrees with relevance: the more relevant heads of a layer are left",
    )
)
def _relevance_survives(corpus: Corpus, model: str) -> Finding:
    return _survives(
        corpus, model, ATTENTIONS, lambda head: (head.attention, head.layer), "relevance"
    )


@claim_of_each(
    Claim(
        "voita-confidence-survives",
        f"{PAPER}, expected in 4, by what pruning leaves",
        "The more confident heads of an attention are left by pruning",
    )
)
def _confidence_survives(corpus: Corpus, model: str) -> Finding:
    return _survives(corpus, model, ATTENTIONS, lambda head: head.attention, "confidence")
