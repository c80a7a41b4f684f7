"""Claims, and the rules by which a verdict is reached, the same for all."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from claims.record import Corpus, NothingToJudge, NotInRecord
from claims.statistics import Bootstrap, HeadStatistic, seed_interval
from claims.words import listed, name_of

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "not decidable here"
UNMEASURED = "not measured"  # the record lacks the runs
OPEN = (UNDECIDED, UNMEASURED)
LEVEL = 0.05  # of all tests


@dataclass(frozen=True)
class Decision:
    """A verdict and its reason."""

    verdict: str
    why: str


@dataclass(frozen=True)
class Finding:
    """What a record says of a claim: values and test in words, with intervals and p."""

    decision: Decision
    values: str = "–"
    test: str = "–"


Judge = Callable[..., Finding]


class Claim(NamedTuple):
    """What a paper says in one sentence, what is measured of which runs, and how it is judged.

    Where ``counted``, heads are counted by a threshold; else a test or an interval decides.
    """

    paper: str
    source: str
    text: str
    measure: str
    judge: Judge
    counted: bool = False

    def judged(self, corpus: Corpus) -> Finding:
        """What a corpus says of it."""
        try:
            return self.judge(corpus)
        except NothingToJudge as nothing:
            return Finding(Decision(UNDECIDED, f"{nothing}"))
        except NotInRecord as missing:
            return Finding(Decision(UNMEASURED, f"{missing}"))


CLAIMS: dict[str, Claim] = {}  # by names such as voita.few_heads.softmax


class Paper:
    """Registers what a paper claims: the functions' docstrings say what is measured."""

    def __init__(self, name: str, *models: str) -> None:
        self.name, self.models = name, models

    def claim(self, where: str, text: str, *, counted: bool = False) -> Callable[[Judge], Judge]:
        """A claim that a function of a corpus judges, or of a corpus and of each of the models."""
        source = f"{self.name}, {where}" if where else self.name

        def register(judge: Judge) -> Judge:
            key = f"{judge.__module__.removeprefix('claims.')}.{judge.__name__}"
            measure = " ".join((judge.__doc__ or "").split()).removesuffix(".")
            if not self.models:
                CLAIMS[key] = Claim(self.name, source, f"{text}.", measure, judge, counted)
            for model in self.models:
                name, own = name_of(model), partial(judge, model=model)
                texts = (f"{text} ({name}).", f"{measure}; {name}")
                CLAIMS[f"{key}.{model}"] = Claim(self.name, source, *texts, own, counted)
            return judge

        return register


ONE_SEED = Decision(UNDECIDED, "one seed alone says nothing of the noise between trainings")


def more_than(
    differences: Collection[float],
    bootstrap: Bootstrap | None = None,
    margin: float = 0.0,
    against: str = "0",
) -> Decision:
    """Decide whether A has more than B, by A's less B's of each seed.

    The bootstrap is of the same over test sentences; a difference up to the margin is of no
    importance; ``against`` names B where it is a number, and the values that are shown are A's.
    """
    if len(differences) < 2:
        return ONE_SEED
    low, high = seed_interval(differences)
    sampled = bootstrap is None or bootstrap.p < LEVEL
    if low > 0 and sampled:
        small_by = f", though by less than {margin:g}, which is of no importance"
        return Decision(
            HOLDS,
            f"every value of the interval is above {against}{small_by if high < margin else ''}",
        )
    if high < 0 and sampled:
        return Decision(
            FAILS, f"it is the other way round: every value of the interval is below {against}"
        )
    small = bool(margin) and -margin <= low and high <= margin
    alike = bootstrap is None or (-margin <= bootstrap.low and bootstrap.high <= margin)
    if small and alike:
        return Decision(FAILS, f"the difference is at most {margin:g}, which is of no importance")
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
    """Decide whether A and B are within a limit of each other, by seeds and by sentences."""
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


# Of one side: to gain is no loss
loses_at_most = partial(within, most=math.inf, what="losses")


def in_each(seeds: Sequence[object], what: str) -> Decision:
    """Decide whether something is so in each seed, such as that its model has heads with a role.

    It is asked of trainings, as the papers mean it; one model would be proved by a single seed.
    """
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

    It is where p is below 0.05 and every seed says so; it is not where that is so of the other
    side, or where the interval over seeds lies within a margin of no importance. The p-values are of
    both sides, where they were corrected.
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
    """Of a claim that something is not so."""
    other = {HOLDS: FAILS, FAILS: HOLDS}.get(decision.verdict, UNDECIDED)
    return replace(decision, verdict=other)


def combined(decisions: Mapping[str, Decision]) -> Decision:
    """Of a claim that says several things at once, with the reason of each that decides.

    It holds where all of them do, and does not where one does not.
    """
    verdicts = {decision.verdict for decision in decisions.values()}
    verdict = FAILS if FAILS in verdicts else HOLDS if verdicts == {HOLDS} else UNDECIDED
    reasons: dict[str, list[str]] = {}
    for name, decision in decisions.items():
        if decision.verdict == verdict:
            reasons.setdefault(decision.why, []).append(name)
    if list(map(len, reasons.values())) == [len(decisions)]:
        return Decision(verdict, next(iter(reasons)))
    why = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    return Decision(verdict, why)


def several(findings: Mapping[str, Finding]) -> Finding:
    """What is found of several things at once, such as of each mapping or attention."""
    tests = {name: found.test for name, found in findings.items()}
    return Finding(
        combined({name: found.decision for name, found in findings.items()}),
        listed({name: found.values for name, found in findings.items()}),
        listed(tests) if len(set(tests.values())) > 1 else next(iter(tests.values())),
    )
