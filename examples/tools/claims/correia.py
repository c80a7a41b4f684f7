"""Correia, Niculae and Martins 2019, *Adaptively Sparse Transformers*: results and section 5.1.

Runs are those of the large size, unless a row says otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy

from claims import words
from claims.bleu import difference
from claims.record import (
    CROSS,
    DECODER_SELF,
    ENCODER_SELF,
    LARGE,
    TRAINED,
    Corpus,
    NothingToJudge,
    NotInRecord,
    Run,
)
from claims.statistics import dip_power, dip_test, mixture_fit
from claims.verdicts import (
    FAILS,
    HOLDS,
    LEVEL,
    UNDECIDED,
    Claim,
    Decision,
    Finding,
    claim,
    combined,
    exists,
    finding,
    holm,
    more_than,
    negated,
    within,
)

SOFTMAX, FIXED, LEARNED = "softmax", "entmax15", "entmax"
SPARSE = (FIXED, LEARNED)
POOLED = "heads of all layers and seeds pooled, as in the figure"
PLAIN: Mapping[str, Any] = {"size": LARGE, "role": TRAINED}
NOISE = 0.5  # BLEU
NEAR_TWO, BELOW_FIXED = 1.75, 1.5
FEWEST_HEADS = 16  # of which a distribution can be told
PAPER_MODES = (1.25, 1.9)  # between softmax and 1.5, and near 2 (figure 3)
BETTER_BIC = 6  # strong evidence (Kass and Raftery 1995)
POWER = 0.8


def alphas(run: Run, *attentions: str) -> list[float]:
    """Of each head."""
    return [head.value("values", "alpha") for head in run.each_head(*attentions)]


@claim(
    Claim(
        "correia-bleu",
        "Correia et al. 2019, 4",
        "Replacing softmax by 1.5-entmax or learned α changes BLEU by no more than noise.",
    )
)
def bleu_within_noise(corpus: Corpus) -> Finding:
    """Table 1, whose differences are from −0.1 to 0.9."""
    decisions, values, tests = {}, {}, {}
    numbers: dict[str, float] = {}
    for model in SPARSE:
        each, sampled = difference(corpus.pairs({"model": model}, {"model": SOFTMAX}, **PLAIN))
        name = words.name_of(model)
        decisions[name] = within(each, NOISE, sampled)
        values[name] = words.over_seeds(each, signed=True)
        tests[name] = words.of_bootstrap(sampled)
        numbers |= {**words.interval_numbers(model, each), f"{model} p": sampled.p}
    found = combined(decisions)
    measure = f"BLEU less that of softmax, within {NOISE:g}"
    return finding(measure, words.listed(values), words.listed(tests), found, numbers)


def _distribution(
    runs: Sequence[Run], attention: str
) -> tuple[Decision, str, str, dict[str, float]]:
    """Whether α has two modes over the heads of all layers and seeds.

    The values are not centred by seed first: α means the same in every model, and centring would
    move the modes of a seed that has more heads in one of them.
    """
    values = [alpha for run in runs for alpha in alphas(run, attention)]
    if len(values) < FEWEST_HEADS or len(set(values)) < 2:
        raise NothingToJudge(
            f"{len(values)} heads of {attention} are too few to tell a distribution"
        )
    found, p = dip_test(values)
    fit = mixture_fit(values)
    gain, power = fit.bic_one - fit.bic_two, math.nan
    if len(runs) < 2:
        decision = Decision(UNDECIDED, "one seed alone says nothing of the noise between trainings")
    elif p < LEVEL and fit.bimodal:
        decision = Decision(HOLDS, "the dip test and the mixture both find two modes")
    elif p < LEVEL or fit.bimodal:
        which = "the dip test" if p < LEVEL else "the mixture"
        decision = Decision(UNDECIDED, f"only {which} finds two modes")
    else:
        decision, power = _one_mode(values, gain)
    means = " and ".join(words.number(mean) for mean in fit.means)
    shares = " and ".join(words.number(share) for share in fit.shares)
    components = (
        f"two Gaussians at {means} (shares {shares}, {fit.modes} mode{'s'[: fit.modes - 1]})"
    )
    spread = f"{len(values)} heads from {min(values):.2f} to {max(values):.2f}; {components}"
    test = (
        f"dip {found:.3f}, {words.p_value(p)}; BIC gained by two Gaussians {words.number(gain, 1)}"
        + ("" if math.isnan(power) else f"; power for the paper's two modes {power:.2f}")
    )
    numbers = {"dip": found, "p": p, "bic gain": gain, "modes": fit.modes, "largest": max(values)}
    numbers |= {"lower mean": fit.means[0], "upper mean": fit.means[1], "heads": len(values)}
    return decision, spread, test, {**numbers, "power": power}


def _one_mode(values: Sequence[float], gain: float) -> tuple[Decision, float]:
    """Whether there is one mode, where no test finds two, which alone would say nothing.

    Args:
        gain: of BIC, by two Gaussians.

    Returns:
        the decision, and the power of the dip test at the paper's two modes, each of them as wide
        as all of these values are, of as many heads.
    """
    power = dip_power(PAPER_MODES, float(numpy.std(values)), len(values))
    if gain > -BETTER_BIC:
        why = f"no test finds two modes, but one Gaussian is not better by {BETTER_BIC} of BIC"
        return Decision(UNDECIDED, why), power
    if power < POWER:
        why = (
            "no test finds two modes, but the dip test would miss the paper's two modes, as wide "
            f"as these values are, in {1 - power:.0%} of such samples"
        )
        return Decision(UNDECIDED, why), power
    return Decision(
        FAILS,
        "one Gaussian is clearly better than two, and the dip test would have found two modes",
    ), power


@claim(
    Claim(
        "correia-alpha-encoder",
        "Correia et al. 2019, 5.1 (figure 3)",
        "The learned α of the encoder's heads have two modes.",
    )
)
def alpha_of_the_encoder(corpus: Corpus) -> Finding:
    """A dip test and a mixture have to agree."""
    runs = corpus.need(model=LEARNED, **PLAIN)
    decision, spread, test, numbers = _distribution(runs, ENCODER_SELF)
    return finding(f"α of encoder-self, {POOLED}", spread, test, decision, numbers)


@claim(
    Claim(
        "correia-alpha-decoder",
        "Correia et al. 2019, 5.1 (figure 3)",
        "The learned α of the decoder's self-attention and of its cross-attention have a single mode.",
    )
)
def alpha_of_the_decoder(corpus: Corpus) -> Finding:
    """That there is one mode is shown, not only that no test finds two; p is corrected."""
    runs = corpus.need(model=LEARNED, **PLAIN)
    decisions, values, tests = {}, {}, {}
    numbers: dict[str, float] = {}
    found = {attention: _distribution(runs, attention) for attention in (DECODER_SELF, CROSS)}
    corrected = holm([entry[3]["p"] for entry in found.values()])
    for (attention, (decision, spread, test, own)), p in zip(found.items(), corrected, strict=True):
        if decision.verdict == HOLDS and p >= LEVEL:
            decision = Decision(UNDECIDED, "two modes are not significant after Holm's correction")
        decisions[attention] = negated(decision)
        values[attention], tests[attention] = spread, f"{test} (Holm {words.p_value(p)})"
        numbers |= {f"{attention} {name}": value for name, value in own.items()}
    measure = f"α of each attention, {POOLED}"
    return finding(measure, words.listed(values), words.listed(tests), combined(decisions), numbers)


@claim(
    Claim(
        "correia-alpha-modes",
        "Correia et al. 2019, 5.1 (figure 3)",
        "The encoder's two modes are one near α = 2 and one between softmax and 1.5.",
    )
)
def where_the_modes_are(corpus: Corpus) -> Finding:
    """Only decided where there are modes, or where no head is near 2."""
    decision, spread, test, numbers = _distribution(
        corpus.need(model=LEARNED, **PLAIN), ENCODER_SELF
    )
    lower, upper = numbers["lower mean"], numbers["upper mean"]
    if decision.verdict == HOLDS:
        right = upper >= NEAR_TWO and lower <= BELOW_FIXED
        means = f"{words.number(lower)} and {words.number(upper)}"
        decision = Decision(HOLDS if right else FAILS, f"they are at {means}")
    elif "one seed" not in decision.why and numbers["largest"] < NEAR_TWO:
        decision = Decision(FAILS, f"no head has an α of {NEAR_TWO} or more")
    else:
        decision = Decision(UNDECIDED, f"two modes are not established: {decision.why}")
    measure = f"means of the two Gaussians: from {NEAR_TWO} up, and {BELOW_FIXED} or less; {POOLED}"
    return finding(measure, spread, test, decision, numbers)


def trajectories(run: Run) -> tuple[list[int], dict[tuple[str, int, int], list[float]]]:
    """How α of each head went.

    Returns:
        the updates, and of each attention, layer and head α at each.

    Raises:
        NotInRecord: it was not recorded.
    """
    points = run.analyzed.get("records", {}).get("alpha", [])
    if len(points) < 3:
        raise NotInRecord(f"the analysis of {run.run} has no trajectories of α")
    ways: dict[tuple[str, int, int], list[float]] = {}
    for point in points:
        for attention, layers in point["values"].items():
            for layer, heads in layers.items():
                for head, value in enumerate(heads):
                    if value is not None:
                        ways.setdefault((attention, int(layer), head), []).append(float(value))
    return [point["update"] for point in points], ways


FIRST = 0.1  # of the updates
TURN = 0.05  # of α, from its least on


@claim(
    Claim(
        "correia-trajectories-fall",
        "Correia et al. 2019, 5.1 (figure 2)",
        "Most α fall at first.",
    )
)
def most_fall_first(corpus: Corpus) -> Finding:
    """After a tenth of the updates; the paper says about a thousand of 12,000 that it shows."""
    runs = corpus.need(model=LEARNED, **PLAIN)
    shares = []
    for run in runs:
        updates, ways = trajectories(run)
        at = int(numpy.searchsorted(updates, FIRST * updates[-1]))
        shares.append(float(numpy.mean([way[at] < way[0] for way in ways.values()])))
    above = [share - 0.5 for share in shares]
    return finding(
        f"share of heads whose α is lower after {FIRST:.0%} of the updates than at the start",
        f"{words.over_seeds(shares)}; less one half {words.over_seeds(above, signed=True)}",
        f"interval of the share less one half, over {len(runs)} seeds",
        more_than(above),
        words.interval_numbers("share", shares),
    )


@claim(
    Claim(
        "correia-trajectories-rise",
        "Correia et al. 2019, 5.1 (figure 2)",
        "Of the α that fall first, some turn and rise.",
    )
)
def some_rise_later(corpus: Corpus) -> Finding:
    """Heads that end clearly above a least α which is clearly below their start."""
    turned, ends = [], [1.0]
    for run in corpus.need(model=LEARNED, **PLAIN):
        _, ways = trajectories(run)
        turns = [w for w in ways.values() if w[0] - min(w) > TURN and w[-1] - min(w) > TURN]
        turned.append(len(turns))
        ends.extend(way[-1] for way in turns)
    decision = exists(turned)
    return finding(
        f"heads that fall by {TURN:g} or more and then rise by as much, of each seed",
        f"{words.counts(turned)}; the highest ends at {max(ends):.2f}",
        "each seed has one",
        decision,
        {"fewest": min(turned), "most": max(turned), "highest end": max(ends)},
        tested=False,
    )
