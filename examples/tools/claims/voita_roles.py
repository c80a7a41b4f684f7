"""Voita et al. 2019, section 5: what the heads of the encoder do, and whether those that do it matter."""

from __future__ import annotations

import numpy

from claims.heads import (
    Accuracy,
    accuracies,
    adjacent_share,
    encoder_roles,
    is_positional,
    is_rare_word,
    rare_word_share,
    role_score,
    without_roles,
)
from claims.judging import (
    ONE_SIDED,
    SMALL_CORRELATION,
    SMALL_SUPERIORITY,
    as_correlation,
    as_share,
    claim_of_each,
    encoder_of,
    existing,
    numbers_of,
    over_heads,
    p_of_sides,
    role_exists,
    trained,
    where,
)
from claims.record import Corpus, NothingToJudge, NotInRecord
from claims.statistics import binomial
from claims.strata import rank_correlation, strata_of, superiority
from claims.verdicts import (
    FAILS,
    HOLDS,
    LEVEL,
    UNDECIDED,
    Claim,
    Decision,
    Finding,
    combine,
    holm,
    more_than,
)
from claims.words import counts, name_of, p_value

PAPER = "Voita et al. 2019"
CONFIDENT = 0.8
_OFFSETS = {"-1": "−1", "1": "+1"}


@claim_of_each(
    Claim(
        "voita-positional",
        f"{PAPER}, 5.1",
        "Some heads of the encoder are positional: 90 % of the time they look at an adjacent token",
    )
)
def _positional(corpus: Corpus, model: str) -> Finding:
    runs = trained(corpus, model)
    found = {run.seed: sum(map(is_positional, encoder_of(run))) for run in runs}
    share, offset, name = max(
        (*adjacent_share(head), f"{head.name} of seed {run.seed}")
        for run in runs
        for head in encoder_of(run)
    )
    decision = role_exists(found, f"{name}: {100 * share:.0f} % at {_OFFSETS[offset]}")
    return Finding(
        "heads whose largest weight is at −1 or +1 for 90 % of the queries that have a token there, "
        f"and for more than half of all; {where(model)}",
        f"{counts(list(found.values()))} of {len(encoder_of(runs[0]))} heads; largest share "
        f"{100 * share:.0f} % ({name})",
        "counted by the paper's threshold, over all test sentences",
        decision.verdict,
        decision.why,
        {"mean_count": float(numpy.mean(list(found.values()))), "largest_share": share},
        tested=False,
    )


@claim_of_each(
    Claim(
        "voita-positional-important",
        f"{PAPER}, 5.1",
        "Positional heads are, to a large extent, the most confident and the most relevant heads",
    )
)
def _positional_important(corpus: Corpus, model: str) -> Finding:
    runs = trained(corpus, model)
    none = f"no head of the encoder of {name_of(model)} is positional: there is nothing to compare"
    tests = [
        existing(
            superiority(
                [
                    stratum
                    for run in runs
                    for stratum in strata_of(
                        run.seed,
                        [
                            (h.layer, h.value(name), float(is_positional(h)))
                            for h in encoder_of(run)
                        ],
                    )
                ]
            ),
            none,
        )
        for name in ("relevance", "confidence")
    ]
    greater = holm([tested.greater for tested in tests])
    less = holm([tested.less for tested in tests])
    decisions = [
        over_heads(tested, SMALL_SUPERIORITY, p_values)
        for tested, p_values in zip(tests, zip(greater, less, strict=True), strict=True)
    ]
    relevance, confidence = tests
    return Finding(
        "probability that a positional head has more than another head of its layer (AUC), of "
        f"relevance and of confidence; {where(model)}",
        f"relevance {as_share(relevance.values)}; confidence {as_share(confidence.values)}",
        f"{ONE_SIDED}, after Holm: relevance {p_value(greater[0])}, confidence "
        f"{p_value(greater[1])}",
        combine(decisions),
        f"of relevance, {decisions[0].why}; of confidence, {decisions[1].why}",
        {**numbers_of(relevance, "relevance"), **numbers_of(confidence, "confidence")},
    )


@claim_of_each(
    Claim(
        "voita-positional-confident",
        f"{PAPER}, 5.1",
        "Every positional head has a mean largest weight above 0.8",
    )
)
def _positional_confident(corpus: Corpus, model: str) -> Finding:
    runs = trained(corpus, model)
    values = [h.value("confidence") for run in runs for h in encoder_of(run) if is_positional(h)]
    if not values:
        raise NothingToJudge(f"no head of the encoder of {name_of(model)} is positional")
    above = sum(value > CONFIDENT for value in values)
    if len(runs) < 2:
        decision = more_than([1.0])
    elif above == len(values):
        decision = Decision(HOLDS, "all of them do")
    else:
        decision = Decision(FAILS, f"{len(values) - above} of {len(values)} do not")
    return Finding(
        f"confidence of the positional heads; {where(model)}",
        f"{above} of {len(values)} above {CONFIDENT}; from {min(values):.2f} to {max(values):.2f}",
        "counted: the claim is of every such head",
        decision.verdict,
        decision.why,
        {"heads": float(len(values)), "above": float(above), "least": min(values)},
    )


@claim_of_each(
    Claim(
        "voita-syntactic",
        f"{PAPER}, 5.2",
        "Some heads of the encoder are syntactic: on a dependency relation they are ten points more "
        "accurate than its most frequent relative position",
    )
)
def _syntactic(corpus: Corpus, model: str) -> Finding:
    runs = trained(corpus, model)
    cases = {
        run.seed: [(one, head.name) for head in encoder_of(run) for one in accuracies(head, run)]
        for run in runs
    }
    if not all(cases.values()):
        raise NotInRecord(
            "the analyses have no dependency relations: parses of the source were not given"
        )
    found = {seed: _syntactic_heads(own) for seed, own in cases.items()}
    best, name = max(
        (case for own in cases.values() for case in own), key=lambda case: case[0].above
    )
    nearest = f"{name} on {best.case}: {100 * best.share:.0f} % against {100 * best.baseline:.0f} %"
    decision = role_exists(found, nearest)
    return Finding(
        "heads that find the other word of nsubj, obj, amod or advmod, in either direction, ten "
        f"points more often than the most frequent offset does; {where(model)}",
        f"{counts(list(found.values()))} heads; best {nearest}",
        "exact binomial test of each head and relation against the offset's share, after Holm: p < "
        "0.05, besides the ten points",
        decision.verdict,
        decision.why,
        {"mean_count": float(numpy.mean(list(found.values()))), "best_above": best.above},
    )


def _syntactic_heads(cases: list[tuple[Accuracy, str]]) -> int:
    """How many heads have a relation that is ten points above its baseline, beyond chance."""
    p_values = holm(
        [binomial(round(one.share * one.arcs), one.arcs, one.baseline) for one, _ in cases]
    )
    return len(
        {
            name
            for (one, name), p in zip(cases, p_values, strict=True)
            if one.is_syntactic and p < LEVEL
        }
    )


@claim_of_each(
    Claim(
        "voita-rare-words",
        f"{PAPER}, 5.3",
        "One head of the lowest layer looks at rare words: in half of the cases or more, at one of "
        "the two rarest tokens",
    )
)
def _rare_words(corpus: Corpus, model: str) -> Finding:
    runs = trained(corpus, model)
    lowest = {run.seed: [head for head in encoder_of(run) if head.layer == 0] for run in runs}
    found = {seed: sum(map(is_rare_word, heads)) for seed, heads in lowest.items()}
    shares = [
        (share, f"{head.name} of seed {seed}")
        for seed, heads in lowest.items()
        for head in heads
        if (share := rare_word_share(head)) is not None
    ]
    if not shares:
        raise NotInRecord("the analyses have no share of rare words")
    share, name = max(shares)
    decision = role_exists(found, f"{name}: {100 * share:.0f} %")
    return Finding(
        "heads of the lowest layer whose largest weight is on one of the sentence's two rarest tokens, "
        f"of half of the queries of sentences that have a rare one; {where(model)}",
        f"{counts(list(found.values()))} heads; largest share {100 * share:.0f} % ({name})",
        "counted by the paper's threshold of half, over all test sentences",
        decision.verdict,
        decision.why,
        {"mean_count": float(numpy.mean(list(found.values()))), "largest_share": share},
        tested=False,
    )


@claim_of_each(
    Claim(
        "voita-rare-words-relevant",
        f"{PAPER}, 5.3",
        "The head that looks at rare words is the most relevant one of the lowest layer",
    )
)
def _rare_words_relevant(corpus: Corpus, model: str) -> Finding:
    firsts, p_values = [], []
    for run in trained(corpus, model):
        heads = [head for head in encoder_of(run) if head.layer == 0]
        rare = [head for head in heads if is_rare_word(head)]
        if rare:
            relevance = max(head.value("relevance") for head in rare)
            is_first = relevance >= max(head.value("relevance") for head in heads)
            firsts.append(is_first)
            # One of them is the first by chance with the probability that they are a share of
            p_values.append(len(rare) / len(heads) if is_first else 1.0)
    if not firsts:
        raise NothingToJudge(f"no head of the lowest layer of {name_of(model)} looks at rare words")
    # The seeds are independent; where one of them says no, chance alone does as much
    p = float(numpy.prod(p_values)) if all(firsts) else 1.0
    if len(firsts) < 2:
        decision = more_than([1.0])
    elif all(firsts):
        enough = Decision(HOLDS, f"it is so in each of {len(firsts)} seeds with such a head")
        decision = enough if p < LEVEL else Decision(UNDECIDED, "chance alone might do as much")
    elif any(firsts):
        decision = Decision(UNDECIDED, f"it is so in {sum(firsts)} of {len(firsts)} seeds")
    else:
        decision = Decision(FAILS, "in no seed is it the most relevant head")
    return Finding(
        f"whether the most relevant head of the lowest layer looks at rare words; {where(model)}",
        f"{sum(firsts)} of {len(firsts)} seeds with such a head",
        f"against any head of the layer: {p_value(p)}",
        decision.verdict,
        decision.why,
        {"seeds": float(len(firsts)), "first": float(sum(firsts)), "p": p},
    )


@claim_of_each(
    Claim(
        "voita-roles-relevant",
        f"{PAPER}, 5",
        "The important heads have interpretable roles: positional, syntactic, or rare words",
    )
)
def _roles_relevant(corpus: Corpus, model: str) -> Finding:
    runs = trained(corpus, model)
    strata = [
        stratum
        for run in runs
        for stratum in strata_of(
            run.seed, [(h.layer, role_score(h, run), h.value("relevance")) for h in encoder_of(run)]
        )
    ]
    tested = existing(rank_correlation(strata), "no layer of the encoder has heads that differ")
    having = [len({h.name for heads in encoder_roles(run).values() for h in heads}) for run in runs]
    decision = over_heads(tested, SMALL_CORRELATION)
    if not any(having):
        decision = Decision(UNDECIDED, without_roles(runs))
    return Finding(
        "Spearman's correlation of relevance (LRP) with how near a head is to its nearest role (1: "
        f"it has one), within layers, mean over layers; {where(model)}",
        f"{as_correlation(tested.values)}; {', '.join(map(str, having))} heads have a role",
        f"{ONE_SIDED}: {p_of_sides(tested)}",
        decision.verdict,
        decision.why,
        {**numbers_of(tested), "heads_with_role": float(numpy.mean(having))},
    )
