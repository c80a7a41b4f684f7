"""Claims, and the rules for verdicts, which are the same for all claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from claims.record import Corpus, NothingToJudge, NotInRecord
from claims.statistics import Bootstrap, HeadStatistic, seed_interval
from claims.words import listed

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decidable here"
UNMEASURED = "not measured"  # the record lacks the runs
UNFORMED = "has not formed here"  # no model has such heads, which refutes no claim on them
OPEN = (UNDECIDED, UNMEASURED, UNFORMED)
LEVEL = 0.05  # of all tests


class Decision(NamedTuple):
    verdict: str
    why: str


class Finding(NamedTuple):
    """What a record says on a claim: values and test in words, with intervals and p."""

    decision: Decision
    values: str = "–"
    test: str = "–"

    def but(self, verdict: str, why: str) -> Finding:
        return self._replace(decision=Decision(verdict, why))

    def denied(self) -> Finding:
        """The finding on the opposite claim."""
        return self._replace(decision=negated(self.decision))

    def beside(self, text: str) -> Finding:
        """Append a text to the values."""
        return self._replace(values=f"{self.values}; {text}")


Judge = Callable[..., Finding]


class Claim(NamedTuple):
    """An entry of claims.toml."""

    paper: str
    source: str
    text: str
    measure: str
    judge: Judge
    counted: bool = False
    pooled: bool = False  # the judge takes several corpora

    def judged(self, *corpora: Corpus) -> Finding:
        try:
            return self.judge(corpora) if self.pooled else self.judge(*corpora)
        except NotInRecord as error:
            undecided = isinstance(error, NothingToJudge)
            return Finding(Decision(UNDECIDED if undecided else UNMEASURED, f"{error}"))


ONE_SEED = Decision(UNDECIDED, "one seed alone says nothing of the noise between trainings")


def more_than(
    differences: Collection[float],
    bootstrap: Bootstrap | None = None,
    margin: float = 0.0,
    against: str = "0",
) -> Decision:
    """Decide whether A has more than B, from the difference A minus B of each seed.

    The bootstrap is of the same difference over test sentences. A difference up to the margin is
    of no importance. ``against`` names B if it is a number; the values shown are then A's.
    """
    if len(differences) < 2:
        return ONE_SEED
    low, high = seed_interval(differences)
    sampled = bootstrap is None or bootstrap.p < LEVEL
    no_importance = f"{margin:g}, which is of no importance"
    if low > 0 and sampled:
        small_by = f", though by less than {no_importance}" if high < margin else ""
        return Decision(HOLDS, f"every value of the interval is above {against}{small_by}")
    if high < 0 and sampled:
        below = f"every value of the interval is below {against}"
        return Decision(FAILS, f"it is the other way round: {below}")
    small = bool(margin) and -margin <= low and high <= margin
    if small and (bootstrap is None or (-margin <= bootstrap.low and bootstrap.high <= margin)):
        return Decision(FAILS, f"the difference is at most {no_importance}")
    if small or not low <= 0 <= high:
        return Decision(UNDECIDED, "seeds agree, but other test sentences might say otherwise")
    return Decision(UNDECIDED, f"the interval has {against} and differences that matter")


def within(
    differences: Sequence[float],
    bootstrap: Bootstrap,
    limit: float,
    most: float | None = None,
    what: str = "differences",
) -> Decision:
    """Decide whether A and B are within a limit of each other, over seeds and over sentences."""
    if len(differences) < 2:
        return ONE_SEED
    most = limit if most is None else most
    lows, highs = zip(seed_interval(differences), (bootstrap.low, bootstrap.high), strict=True)
    if min(lows) >= -limit and max(highs) <= most:
        return Decision(HOLDS, f"all {what} that are likely are at most {limit:g}")
    if min(lows) > most or max(highs) < -limit:
        return Decision(FAILS, f"all {what} that are likely are more than {limit:g}")
    why = f"of seeds or of sentences, {what} below and above {limit:g} are likely"
    return Decision(UNDECIDED, why)


# One-sided: a gain is no loss
loses_at_most = partial(within, most=math.inf, what="losses")


def in_each(seeds: Sequence[object], what: str) -> Decision:
    """Whether something is true for each seed: a claim on trainings, not on one model."""
    if len(seeds) < 2:
        return ONE_SEED
    if all(seeds):
        return Decision(HOLDS, f"every seed has {what}")
    if not any(seeds):
        return Decision(FAILS, f"no seed has {what}")
    return Decision(UNDECIDED, f"{sum(map(bool, seeds))} of {len(seeds)} seeds have {what}")


def over_heads(
    tested: HeadStatistic, margin: float = 0.0, p_values: tuple[float, float] | None = None
) -> Decision:
    """Decide whether a statistic over heads is more than chance.

    It is if p is below 0.05 and every seed agrees. It is not if the same is true for the other side,
    or if the interval over seeds lies within a margin of no importance. ``p_values`` replaces the
    p-values of both sides by corrected ones.
    """
    greater, less = p_values or (tested.greater, tested.less)
    differences = [value - tested.chance for value in tested.values]
    if len(differences) < 2:
        return ONE_SEED
    low, high = seed_interval(differences)
    each = f"chance in each of {len(differences)} seeds, and p of all together is below {LEVEL:g}"
    if greater < LEVEL and min(differences) > 0:
        return Decision(HOLDS, f"it lies above {each}")
    if less < LEVEL and max(differences) < 0:
        return Decision(FAILS, f"it lies below {each}")
    if margin and -margin <= low and high <= margin:
        return Decision(FAILS, f"it is within {margin:g} of chance, which is of no importance")
    if greater < LEVEL or less < LEVEL:
        return Decision(UNDECIDED, "it differs from chance, but not in each seed to the same side")
    return Decision(UNDECIDED, "chance alone might do as much")


def negated(decision: Decision) -> Decision:
    other = {HOLDS: FAILS, FAILS: HOLDS, UNFORMED: HOLDS}.get(decision.verdict, UNDECIDED)
    return Decision(other, decision.why)


def several(findings: Mapping[str, Finding]) -> Finding:
    """Combine findings into one, with the reason of each that decides.

    The claim holds if all of them hold, and does not hold if one does not.
    """
    verdicts = {found.decision.verdict for found in findings.values()}
    verdict = HOLDS if verdicts == {HOLDS} else UNDECIDED
    verdict = next((one for one in (FAILS, UNFORMED) if one in verdicts), verdict)
    reasons: dict[str, list[str]] = {}
    for name, found in findings.items():
        if found.decision.verdict == verdict:
            reasons.setdefault(found.decision.why, []).append(name)
    why = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    if list(map(len, reasons.values())) == [len(findings)]:
        why = next(iter(reasons))
    tests = {name: found.test for name, found in findings.items()}
    same = len(set(tests.values())) == 1
    return Finding(
        Decision(verdict, why),
        listed({name: found.values for name, found in findings.items()}),
        next(iter(tests.values())) if same else listed(tests),
    )
