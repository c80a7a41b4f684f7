"""What the papers leave open: whether learning α pays, what it depends on, and what sparsity speeds up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from claims import words
from claims.bleu import difference, difference_of_differences
from claims.correia import FIXED, LEARNED, PLAIN, SOFTMAX, trajectories
from claims.judging import as_correlation
from claims.pruned import EQUAL_UPDATES
from claims.record import (
    ATTENTIONS,
    CONTINUED,
    EQUALTIME,
    LARGE,
    PRUNED,
    SMALL,
    TRAINED,
    Corpus,
    NothingToJudge,
    NotInRecord,
    Run,
)
from claims.speed import TRAINING, ratios
from claims.statistics import combined_p, spearman
from claims.verdicts import (
    HOLDS,
    LEVEL,
    UNDECIDED,
    Claim,
    Decision,
    Finding,
    claim,
    combined,
    finding,
    holm,
    more_than,
    within,
)

HERE = "beyond the papers"
UNIMPORTANT_LOSS = 0.01  # bits a token
UNIMPORTANT_BLEU = 0.1
# Times that differ by this share are taken for the same: timings of a shared machine differ as much
EQUAL_TIME = 0.1
UNIMPORTANT_RANKS = 0.3  # of a rank correlation
PRUNING_COST = 0.5  # BLEU
BUDGET = "all24"


def loss_gained(pairs: Sequence[tuple[Run, Run]]) -> list[float]:
    """By how much the least validation loss of the first of each pair is below the second's."""
    return [b.least_validation_loss - a.least_validation_loss for a, b in pairs]


def _differ(first: float, second: float, share: float) -> bool:
    return abs(first - second) > share * second


def check_equal_time(corpus: Corpus, pairs: Sequence[tuple[Run, Run]]) -> None:
    """Do nothing where each pair's first had as many updates as take as long as the second's.

    By the speed of training that was measured; where it was not, the record is believed.

    Raises:
        NothingToJudge: it had more or fewer by a tenth.
    """
    learned, fixed = (corpus.of(model=model, **PLAIN) for model in (LEARNED, FIXED))
    try:
        ratio = float(numpy.median(ratios(corpus, TRAINING, learned[0], fixed[0])))
    except (NotInRecord, KeyError, IndexError):
        return
    for one, other in pairs:
        expected = ratio * other.updates
        if _differ(one.updates, expected, EQUAL_TIME):
            raise NothingToJudge(
                f"{one.run} had {one.updates} updates, and in the time of {other.run} it would have "
                f"had {expected:.0f}"
            )


@claim(Claim("beyond-equal-time", HERE, "Learned α is better than 1.5-entmax at equal time."))
def better_at_equal_time(corpus: Corpus) -> Finding:
    """Both are trained in full, each with a rate that falls to 0 at its own end.

    To cut the slower one's training where the other ended would compare a rate that is still high
    with one that has fallen.
    """
    pairs = corpus.pairs(
        {"model": LEARNED, "role": EQUALTIME}, {"model": FIXED, "role": TRAINED}, size=LARGE
    )
    check_equal_time(corpus, pairs)
    gained = loss_gained(pairs)
    each, sampled = difference(pairs)
    decisions = {
        "loss": more_than(gained, margin=UNIMPORTANT_LOSS),
        "BLEU": more_than(each, sampled, margin=UNIMPORTANT_BLEU),
    }
    one, other = pairs[0]
    return finding(
        "best validation loss of 1.5-entmax less that of learned α, bits a token (up to "
        f"{UNIMPORTANT_LOSS:g} is of no importance), and BLEU of learned α less that of 1.5-entmax (up to "
        f"{UNIMPORTANT_BLEU:g}); both have to say so; learned α was trained for {one.updates} updates, which take as "
        f"long as the {other.updates} of 1.5-entmax",
        f"loss {words.over_seeds(gained, 4, signed=True)}; BLEU {words.over_seeds(each, signed=True)}",
        f"intervals over seeds; BLEU: {words.of_bootstrap(sampled)}",
        combined(decisions),
        {
            **words.interval_numbers("loss", gained),
            **words.interval_numbers("BLEU", each),
            "p": sampled.p,
        },
    )


@claim(Claim("beyond-equal-updates", HERE, "Learned α is better than 1.5-entmax at equal updates."))
def better_at_equal_updates(corpus: Corpus) -> Finding:
    """What an update costs is left out."""
    sizes = {}
    for size in (LARGE, SMALL):
        try:
            pairs = corpus.pairs({"model": LEARNED}, {"model": FIXED}, size=size, role=TRAINED)
            _check_equal_updates(pairs)
        except NotInRecord:
            if size == LARGE:
                raise
            continue
        sizes[size] = loss_gained(pairs)
    numbers: dict[str, float] = {}
    for size, gained in sizes.items():
        numbers |= words.interval_numbers(size, gained)
    shown = {size: words.over_seeds(gained, 4, signed=True) for size, gained in sizes.items()}
    return finding(
        "best validation loss of 1.5-entmax less that of learned α, bits a token; up to "
        f"{UNIMPORTANT_LOSS:g} is of no importance; the large size decides",
        words.listed(shown),
        "interval over seeds",
        more_than(sizes[LARGE], margin=UNIMPORTANT_LOSS),
        numbers,
    )


def _check_equal_updates(pairs: Sequence[tuple[Run, Run]]) -> None:
    for one, other in pairs:
        if _differ(one.updates, other.updates, EQUAL_UPDATES):
            raise NothingToJudge(
                f"{one.run} had {one.updates} updates and {other.run} {other.updates}: what they "
                "differ in may be that"
            )


@claim(
    Claim(
        "beyond-alpha-start",
        f"{HERE}; Correia et al. 2019, 5.1, say that the start does not predetermine it",
        "Which heads have the higher α at the end depends on where α started at random.",
    )
)
def alpha_follows_its_start(corpus: Corpus) -> Finding:
    """Spearman's correlation of start and end over the heads of each attention."""
    runs = corpus.need(model=LEARNED, **PLAIN)
    correlations: dict[str, list[float]] = {attention: [] for attention in ATTENTIONS}
    p_values: dict[str, list[float]] = {attention: [] for attention in ATTENTIONS}
    for run in runs:
        _, ways = trajectories(run)
        for attention in ATTENTIONS:
            own = [way for (name, _, _), way in sorted(ways.items()) if name == attention]
            rho, p = spearman([way[0] for way in own], [way[-1] for way in own])
            correlations[attention].append(rho)
            p_values[attention].append(p)
    means = [float(numpy.mean(row)) for row in zip(*correlations.values(), strict=True)]
    decision = more_than(means, margin=UNIMPORTANT_RANKS)
    p_all = combined_p([p for values in p_values.values() for p in values])
    if decision.verdict == HOLDS and p_all >= LEVEL:
        decision = Decision(UNDECIDED, "seeds agree, but over heads it is not significant")
    corrected = holm([combined_p(values) for values in p_values.values()])
    tests = {a: words.p_value(p) for a, p in zip(ATTENTIONS, corrected, strict=True)}
    numbers = {**words.interval_numbers("mean", means), "p": p_all}
    for attention, each in correlations.items():
        numbers |= words.interval_numbers(attention, each)
    return finding(
        "Spearman's correlation of a head's α at the start and at the end, mean over attentions; up to "
        f"{UNIMPORTANT_RANKS:g} is of no importance",
        f"{as_correlation(means)}; "
        + words.listed({a: as_correlation(each) for a, each in correlations.items()}),
        f"interval over seeds; over heads, seeds combined, {words.p_value(p_all)}; of each attention, "
        f"Holm: {words.listed(tests)}",
        decision,
        numbers,
    )


@claim(
    Claim(
        "beyond-pruning-mapping",
        HERE,
        "Pruning to 24 of 72 heads costs learned α as much BLEU as softmax.",
    )
)
def pruning_costs_the_same(corpus: Corpus) -> Finding:
    """Pruned against continued, of the one mapping against the other."""
    each_model = {}
    for model in (LEARNED, SOFTMAX):
        pairs = corpus.pairs(
            {"role": PRUNED, "budget": BUDGET}, {"role": CONTINUED}, model=model, size=LARGE
        )
        each_model[model] = {one.seed: (one, other) for one, other in pairs}
    seeds = sorted(each_model[LEARNED].keys() & each_model[SOFTMAX].keys())
    if not seeds:
        raise NotInRecord("no seed has been pruned with both mappings")
    learned, softmax = ([found[seed] for seed in seeds] for found in each_model.values())
    each, sampled = difference_of_differences(learned, softmax)
    costs = {
        words.name_of(model): words.over_seeds([a.bleu - b.bleu for a, b in pairs], signed=True)
        for model, pairs in ((LEARNED, learned), (SOFTMAX, softmax))
    }
    return finding(
        f"BLEU of pruned less continued, of learned α less of softmax; within {PRUNING_COST:g}",
        f"{words.over_seeds(each, signed=True)}; {words.listed(costs)}",
        f"interval over seeds; {words.of_bootstrap(sampled)}",
        within(each, PRUNING_COST, sampled),
        {**words.interval_numbers("difference", each), "p": sampled.p},
    )
