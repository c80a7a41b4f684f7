"""Correia, Niculae and Martins 2019, *Adaptively Sparse Transformers*: the learned α (section 5.1).

All runs are of the large size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy

from claims import record, rules, statistics, words
from claims.correia import learned
from claims.measures import more
from claims.modes import Mixture, dip_power, dip_test, mixture_fit
from claims.record import CROSS, DECODER_SELF, ENCODER_SELF, Corpus, Run
from claims.rules import FAILS, HOLDS, LEVEL, ONE_SEED, UNDECIDED, Decision, Finding, several

NEAR_TWO, BELOW_FIXED = 1.75, 1.5
FEWEST_HEADS = 16  # needed to judge a distribution
PAPER_MODES = (1.25, 1.9)  # between softmax and 1.5, and near 2 (figure 3)
BETTER_BIC = 6  # strong evidence (Kass and Raftery 1995)
POWER = 0.8
TURN = 0.05  # of α, after its minimum


# --- the distribution of α ----------------------------------------------------


class Distribution(NamedTuple):
    finding: Finding
    p: float
    fit: Mixture
    largest: float


def _distribution(corpus: Corpus, attention: str) -> Distribution:
    """Judge a distribution of α by a dip test and a mixture, which have to agree.

    Values are not centred by seed: α means the same in every model, and centring would move the
    modes of a seed that has more heads in one of them.
    """
    runs = learned(corpus)
    values = [head.value("values", "alpha") for run in runs for head in run.each_head(attention)]
    if len(values) < FEWEST_HEADS or len(set(values)) < 2:
        raise record.NothingToJudge(
            f"{len(values)} heads of {attention} are too few for a distribution"
        )
    found, p = dip_test(values)
    fit = mixture_fit(values)
    test = f"dip {found:.3f}, {words.p_value(p)}; BIC gained by two Gaussians {words.number(fit.gain, 1)}"
    if len(runs) < 2:
        decision = ONE_SEED
    elif p < LEVEL and fit.bimodal:
        decision = Decision(HOLDS, "the dip test and the mixture both find two modes")
    elif p < LEVEL or fit.bimodal:
        which = "the dip test" if p < LEVEL else "the mixture"
        decision = Decision(UNDECIDED, f"only {which} finds two modes")
    else:
        power = dip_power(PAPER_MODES, float(numpy.std(values)), len(values))
        decision = _one_mode(fit.gain, power)
        test += f"; power for the paper's two modes {power:.2f}"
    means, shares = (" and ".join(map(words.number, pair)) for pair in (fit.means, fit.shares))
    spread = (
        f"{len(values)} heads from {min(values):.2f} to {max(values):.2f}; two Gaussians at {means} "
        f"(shares {shares}, {fit.modes} mode{'s'[: fit.modes - 1]})"
    )
    return Distribution(Finding(decision, spread, test), p, fit, max(values))


def _one_mode(gain: float, power: float) -> Decision:
    """Decide whether there is one mode; that no test finds two does not suffice."""
    none = "no test finds two modes, but"
    if gain > -BETTER_BIC:
        return Decision(UNDECIDED, f"{none} one Gaussian is not better by {BETTER_BIC} of BIC")
    if power < POWER:
        missed = f"would miss the paper's two modes in {1 - power:.0%} of such samples"
        return Decision(UNDECIDED, f"{none} the dip test {missed}")
    why = "one Gaussian is clearly better than two, and the dip test would have found two modes"
    return Decision(FAILS, why)


def alpha_of_the_encoder(corpus: Corpus) -> Finding:
    return _distribution(corpus, ENCODER_SELF).finding


def alpha_of_the_decoder(corpus: Corpus) -> Finding:
    distributions = {name: _distribution(corpus, name) for name in (DECODER_SELF, CROSS)}
    corrected = statistics.holm([one.p for one in distributions.values()])
    found = {}
    for (name, (own, *_)), p in zip(distributions.items(), corrected, strict=True):
        if own.decision.verdict == HOLDS and p >= LEVEL:
            own = own.but(UNDECIDED, "two modes are not significant after Holm's correction")
        found[name] = own.denied()._replace(test=f"{own.test} (Holm {words.p_value(p)})")
    return several(found)


def where_the_modes_are(corpus: Corpus) -> Finding:
    finding, _, fit, largest = _distribution(corpus, ENCODER_SELF)
    lower, upper = fit.means
    if finding.decision.verdict == HOLDS:
        right = upper >= NEAR_TWO and lower <= BELOW_FIXED
        why = f"they are at {words.number(lower)} and {words.number(upper)}"
        return finding.but(HOLDS if right else FAILS, why)
    if finding.decision is not ONE_SEED and largest < NEAR_TWO:
        return finding.but(FAILS, f"no head has an α of {NEAR_TWO} or more")
    return finding.but(UNDECIDED, f"two modes are not established: {finding.decision.why}")


# --- trajectories of α --------------------------------------------------------


def trajectories(run: Run) -> tuple[list[int], dict[tuple[str, int, int], list[float]]]:
    """The updates, and for each attention, layer and head its α at these updates."""
    points = run.analyzed.get("records", {}).get("alpha", [])
    if len(points) < 3:
        raise record.NotInRecord(f"the analysis of {run.run} has no trajectories of α")
    ways: dict[tuple[str, int, int], list[float]] = {}
    for point in points:
        for attention, layers in point["values"].items():
            for layer, heads in layers.items():
                for head, value in enumerate(heads):
                    if value is not None:
                        ways.setdefault((attention, int(layer), head), []).append(float(value))
    return [point["update"] for point in points], ways


def most_fall_first(corpus: Corpus) -> Finding:
    shares = []
    for run in learned(corpus):
        updates, ways = trajectories(run)
        at = int(numpy.searchsorted(updates, 0.1 * updates[-1]))
        shares.append(float(numpy.mean([way[at] < way[0] for way in ways.values()])))
    found = more(numpy.subtract(shares, 0.5))
    return found._replace(values=f"{words.over_seeds(shares)}; less one half {found.values}")


def some_rise_later(corpus: Corpus) -> Finding:
    turned, ends = [], [1.0]
    for run in learned(corpus):
        ways = trajectories(run)[1].values()
        turns = [w for w in ways if w[0] - min(w) > TURN and w[-1] - min(w) > TURN]
        turned.append(len(turns))
        ends.extend(way[-1] for way in turns)
    values = f"{words.counts(turned)}; the highest ends at {max(ends):.2f}"
    return Finding(rules.in_each(turned, "such a head"), values, "each seed has one")
