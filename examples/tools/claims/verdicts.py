"""Claims, what was found of them, and the rules by which a verdict is reached, the same for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from claims.record import Corpus, NothingToJudge, NotInRecord
from claims.statistics import Bootstrap, seed_interval

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decidable here"
UNMEASURED = "not measured"  # the record lacks the runs
OPEN = (UNDECIDED, UNMEASURED)
LEVEL = 0.05  # of all tests

RULES = """\
- *A has more than B* **holds** where the 95 % interval (Student's t, over seeds) of the difference of
  runs with the same seed lies above 0, and **does not hold** where it lies below 0, or has 0 and lies wholly within a
  margin that is stated as being of no importance. (Above 0 and within the margin it holds, and the reason says how
  little it is.) Of BLEU, the paired bootstrap over sentences
  (of the difference's mean over seeds) has to say so too: p < 0.05, or its 95 % interval within the margin. Else it is
  **not decidable here**. Of what is a mean over heads and all words of the test set, such as density, the
  values of each sentence are not kept: its intervals are over seeds alone, and do not say what other sentences would. Its p is two-sided: the share of samples whose difference is as far from the samples' mean, on
  either side, as the difference itself is from 0. That is not sacreBLEU's p, which is about half of it.
- *Within d of each other* **holds** where both intervals lie in [−d, d], and **does not hold** where both lie wholly
  above d, or both wholly below −d. *Loses no more than d* **holds** where both lie above −d, and **does not hold** where
  both lie wholly below: to gain is no loss. One of them alone decides nothing.
- What is counted over heads is tested exactly for each seed, and the p-values of seeds are combined (Fisher's method).
  For correlations and AUCs over heads, heads are permuted within their layer or attention, and p is one-sided; heads that
  are left, or whose removal is significant, are added up over seeds. Such a claim holds, or does not, where p < 0.05 and each
  seed lies on that side; of no importance are correlations up to 0.2, AUCs within 0.1 of one half, and shares of heads
  up to 0.05.
- *Values have two modes* **holds** where the dip test and a mixture of two Gaussians both find them, and **does not hold**
  (they have one) where one Gaussian is better by 6 of BIC or more and the dip test's simulated power is 0.8 or more: at
  two Gaussians of equal shares, at the paper's modes, each as wide as all values are, of as many values.
- Of several tests in a row of the table, p is corrected by Holm's method; all are read at 0.05. Across rows nothing is
  corrected, as most rows are decided by intervals, of several things at once: how many verdicts chance alone may have
  made is said below the verdicts.
- Where a claim needs several things at once, it holds where all of them do, and does not hold where one does not; that
  needs no correction.
- Speed is measured of one seed, all models in turns; its noise is that of timing, so intervals are over rounds.
- One seed says nothing of the noise between trainings: with it alone, such a claim never holds, nor fails.
- That heads with some role exist is asked of trainings, whether they make such heads, and not of one model: it **holds**
  where the model of each seed has one, and **does not hold** where that of none has; between them, and of one seed,
  whether its model has such a head or not, it is **not decidable here**. So is what is said of heads with a role that
  none has.
- What the record has no runs for was **not measured**. Of several corpora, *agree* says whether those that decide say the
  same; – where fewer than two do."""


@dataclass(frozen=True)
class Claim:
    """What a paper says.

    Attributes:
        key: a name of its own, such as ``correia-bleu``.
        source: such as ``Correia et al. 2019, 5.1``.
        text: one sentence.
    """

    key: str
    source: str
    text: str


@dataclass(frozen=True)
class Finding:
    """What a record says of a claim.

    Attributes:
        measure: what was measured, of which runs.
        values: in words, with intervals.
        test: which, and p.
        verdict: `HOLDS`, `FAILS`, `UNDECIDED` or `UNMEASURED`.
        why: one sentence.
        numbers: what ``values`` and ``test`` say, for programs.
        tested: whether a test or an interval at 0.05 decides; else heads are counted.
    """

    measure: str
    values: str
    test: str
    verdict: str
    why: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    tested: bool = True


@dataclass(frozen=True)
class Decision:
    """A verdict and its reason, before what was measured is written around it."""

    verdict: str
    why: str


def finding(
    measure: str,
    values: str,
    test: str,
    decision: Decision,
    numbers: Mapping[str, float] | None = None,
    tested: bool = True,
) -> Finding:
    """A finding of what was decided."""
    return Finding(measure, values, test, decision.verdict, decision.why, numbers or {}, tested)


Judge = Callable[[Corpus], Finding]
CLAIMS: dict[str, tuple[Claim, Judge]] = {}


def claim(what: Claim) -> Callable[[Judge], Judge]:
    """Register the function that judges a claim.

    What it raises as ``NotInRecord`` becomes the reason why the claim was not measured, or, as
    ``NothingToJudge``, why it is not decidable.

    Raises:
        ValueError: there is a claim of that key.
    """
    if what.key in CLAIMS:
        raise ValueError(f"there are two claims called '{what.key}'")

    def register(judge: Judge) -> Judge:
        CLAIMS[what.key] = (what, judge)
        return judge

    return register


def judge(key: str, corpus: Corpus) -> Finding:
    """What a corpus says of a claim, by its key."""
    try:
        return CLAIMS[key][1](corpus)
    except NothingToJudge as nothing:
        return undecided("–", f"{nothing}")
    except NotInRecord as missing:
        return Finding("–", "–", "–", UNMEASURED, f"{missing}")


def undecided(measure: str, why: str) -> Finding:
    """A finding without numbers."""
    return Finding(measure, "–", "–", UNDECIDED, why)


def more_than(
    differences: Sequence[float],
    bootstrap: Bootstrap | None = None,
    margin: float = 0.0,
    against: str = "0",
) -> Decision:
    """Decide whether A has more than B.

    Args:
        differences: A's less B's, of each seed.
        bootstrap: of the same over test sentences, where that is what was measured on.
        margin: a difference that is of no importance.
        against: B where it is a number, and the values that are shown are A's own, for the reason.
    """
    low, high = seed_interval(differences)
    if math.isnan(low):
        return _one_seed(differences)
    sampled = bootstrap is None or bootstrap.p < LEVEL
    if low > 0 and sampled:
        small = (
            f", though by less than {margin:g}, which is of no importance" if high < margin else ""
        )
        return Decision(HOLDS, f"every value of the interval is above {against}{small}")
    if high < 0 and sampled:
        return Decision(
            FAILS, f"it is the other way round: every value of the interval is below {against}"
        )
    alike = bootstrap is None or (-margin <= bootstrap.low and bootstrap.high <= margin)
    if margin and -margin <= low and high <= margin and alike:
        return Decision(FAILS, f"the difference is at most {margin:g}, which is of no importance")
    if not low <= 0 <= high:
        return Decision(UNDECIDED, "seeds agree, but other test sentences might say otherwise")
    if margin and -margin <= low and high <= margin:
        return Decision(
            UNDECIDED, "seeds differ little, but other test sentences might say otherwise"
        )
    return Decision(UNDECIDED, f"the interval has {against} and differences that matter")


def within(
    differences: Sequence[float], limit: float, bootstrap: Bootstrap | None = None
) -> Decision:
    """Decide whether A and B are within a limit of each other.

    Args:
        differences: of each seed.
        limit: above 0.
        bootstrap: as for :func:`more_than`.
    """
    low, high = seed_interval(differences)
    if math.isnan(low):
        return _one_seed(differences)
    intervals = [(low, high)]
    if bootstrap is not None:
        intervals.append((bootstrap.low, bootstrap.high))
    if all(-limit <= low and high <= limit for low, high in intervals):
        return Decision(HOLDS, f"all differences that are likely are at most {limit:g}")
    above = all(low > limit for low, _ in intervals)
    if above or all(high < -limit for _, high in intervals):
        return Decision(FAILS, f"all differences that are likely are more than {limit:g}")
    return Decision(
        UNDECIDED, f"of seeds or of sentences, differences below and above {limit:g} are likely"
    )


def exists(counts: Sequence[int]) -> Decision:
    """Decide whether there are heads with some role.

    It is asked of trainings, whether they make such heads, as the papers mean it; not whether one
    model has one, which a single seed would prove.

    Args:
        counts: how many have it, of each seed.
    """
    if len(counts) < 2:
        has = f"the model of one seed has {counts[0]} of them; " if counts else ""
        return Decision(UNDECIDED, f"{has}{_one_seed(counts).why}")
    if all(counts):
        return Decision(HOLDS, "every seed has such a head")
    if not any(counts):
        return Decision(FAILS, "no seed has such a head")
    return Decision(UNDECIDED, f"{sum(map(bool, counts))} of {len(counts)} seeds have such a head")


def negated(decision: Decision, why: str = "") -> Decision:
    """Of a claim that something is not so.

    Args:
        why: instead of the reason that it was decided for.
    """
    other = {HOLDS: FAILS, FAILS: HOLDS}.get(decision.verdict, UNDECIDED)
    return Decision(other, why or decision.why)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction of p-values of tests that belong together, in their order (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    corrected = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[place]))
        corrected[place] = largest
    return corrected


def combine(decisions: Sequence[Decision]) -> str:
    """The verdict of a claim that says several things at once.

    It holds where all of them do, and does not where one does not.
    """
    verdicts = {decision.verdict for decision in decisions}
    if FAILS in verdicts:
        return FAILS
    return HOLDS if verdicts == {HOLDS} else UNDECIDED


def combined(decisions: Mapping[str, Decision]) -> Decision:
    """As :func:`combine`, with the reason of each thing that decides.

    Args:
        decisions: by what they are of, such as ``encoder-self``.
    """
    verdict = combine(list(decisions.values()))
    reasons: dict[str, list[str]] = {}
    for name, decision in decisions.items():
        if decision.verdict == verdict:
            reasons.setdefault(decision.why, []).append(name)
    if list(map(len, reasons.values())) == [len(decisions)]:
        return Decision(verdict, next(iter(reasons)))
    why = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return Decision(verdict, why)


def _one_seed(differences: Sequence[float]) -> Decision:
    seeds = "one seed" if len(differences) == 1 else "no seed"
    return Decision(UNDECIDED, f"{seeds} alone says nothing of the noise between trainings")
