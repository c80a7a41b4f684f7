"""What the judges of several papers share: claims of each model, comparisons of BLEU, words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, update_wrapper
from typing import Any

import numpy

from claims.bleu import difference
from claims.record import ENCODER_SELF, LARGE, TRAINED, Corpus, Head, NothingToJudge, Run
from claims.statistics import Bootstrap, seed_interval
from claims.strata import HeadStatistic
from claims.verdicts import (
    FAILS,
    HOLDS,
    LEVEL,
    UNDECIDED,
    Claim,
    Decision,
    Finding,
    claim,
    exists,
    more_than,
)
from claims.words import interval_numbers, name_of, number, of_bootstrap, over_seeds, p_value

SOFTMAX, ENTMAX, SPARSEMAX = "softmax", "entmax", "sparsemax"
OF_EACH = (SOFTMAX, ENTMAX)  # the models that are pruned and ablated
# What is of no importance: of rank correlations, of AUCs (from one half), and of shares of heads
SMALL_CORRELATION, SMALL_SUPERIORITY, SMALL_SHARE = 0.2, 0.1, 0.05
PERMUTED = "heads permuted within their stratum, 10,000 times for each seed, combined by Fisher"
ONE_SIDED = f"one-sided; {PERMUTED}"

JudgeOfModel = Callable[[Corpus, str], Finding]


def claim_of_each(what: Claim) -> Callable[[JudgeOfModel], JudgeOfModel]:
    """Register a claim for softmax and for learned α: two rows, keys ending in the model's name."""

    def register(judge: JudgeOfModel) -> JudgeOfModel:
        for model in OF_EACH:
            own = Claim(f"{what.key}-{model}", what.source, f"{what.text} ({name_of(model)}).")
            # With the module of the judge, by which the table is ordered
            claim(own)(update_wrapper(partial(_of_model, judge, model), judge))
        return judge

    return register


def _of_model(judge: JudgeOfModel, model: str, corpus: Corpus) -> Finding:
    return judge(corpus, model)


@dataclass(frozen=True)
class Compared:
    """BLEU of two kinds of models of the same seeds.

    Attributes:
        pairs: of each seed, in their order.
        bootstrap: of the difference over test sentences, its mean over seeds.
    """

    pairs: Sequence[tuple[Run, Run]]
    bootstrap: Bootstrap

    @property
    def differences(self) -> list[float]:
        """The first model's BLEU less the second's, of each seed."""
        return [first.bleu - second.bleu for first, second in self.pairs]

    @property
    def values(self) -> str:
        """Both models' BLEU and the difference, in words."""
        first, second = numpy.mean([(a.bleu, b.bleu) for a, b in self.pairs], axis=0)
        gap = over_seeds(self.differences, signed=True)
        return f"BLEU {first:.2f} against {second:.2f}; difference {gap}"

    @property
    def test(self) -> str:
        """The intervals that decide, in words."""
        return f"t interval over seeds; {of_bootstrap(self.bootstrap)}"

    @property
    def numbers(self) -> dict[str, float]:
        """Of the table's row, for programs."""
        return {
            **interval_numbers("difference", self.differences),
            "bootstrap low": self.bootstrap.low,
            "bootstrap high": self.bootstrap.high,
            "p": self.bootstrap.p,
        }


def compare_bleu(
    corpus: Corpus, first: Mapping[str, Any], second: Mapping[str, Any], **common: Any
) -> Compared:
    """Compare two kinds of models of a corpus.

    Args:
        first, second, common: as for :meth:`Corpus.pairs`.

    Raises:
        NotInRecord: no seed has both.
    """
    pairs = corpus.pairs(first, second, **common)
    return Compared(pairs, difference(pairs)[1])


def loses_at_most(compared: Compared, limit: float) -> Decision:
    """Decide whether the first models lose no more than a limit against the second.

    It is :func:`verdicts.within` of one side: to gain is no loss.
    """
    low, high = seed_interval(compared.differences)
    if len(compared.differences) < 2:
        return more_than(compared.differences)
    sampled = compared.bootstrap
    if low >= -limit and sampled.low >= -limit:
        return Decision(HOLDS, f"all losses that are likely are at most {limit:g}")
    if high < -limit and sampled.high < -limit:
        return Decision(FAILS, f"all losses that are likely are more than {limit:g}")
    return Decision(
        UNDECIDED, f"of seeds or of sentences, losses below and above {limit:g} are likely"
    )


def over_heads(
    tested: HeadStatistic, margin: float = 0.0, p_values: tuple[float, float] | None = None
) -> Decision:
    """Decide whether a statistic over heads is more than chance.

    It is where p is below 0.05 and every seed says so; it is not where that is so of the other
    side, or where the interval over seeds lies within a margin of no importance.

    Args:
        margin: around chance; 0 for none.
        p_values: of both sides, where they were corrected; the statistic's own otherwise.
    """
    greater, less = p_values or (tested.greater, tested.less)
    differences = tested.above_chance
    low, high = seed_interval(differences)
    if len(differences) < 2:
        return more_than(differences)
    together = f", and p of all together is below {LEVEL:g}"
    if greater < LEVEL and min(differences) > 0:
        return Decision(
            HOLDS, f"it lies above chance in each of {len(differences)} seeds{together}"
        )
    if less < LEVEL and max(differences) < 0:
        return Decision(
            FAILS, f"it lies below chance in each of {len(differences)} seeds{together}"
        )
    if margin and -margin <= low and high <= margin:
        return Decision(FAILS, f"it is within {margin:g} of chance, which is of no importance")
    if greater < LEVEL or less < LEVEL:
        return Decision(UNDECIDED, "it differs from chance, but not in each seed to the same side")
    return Decision(UNDECIDED, "chance alone might do as much")


def role_exists(counts: Mapping[int, int], nearest: str) -> Decision:
    """As :func:`verdicts.exists`; where no head has the role, the nearest is named.

    Args:
        counts: how many heads have the role in the model of each seed.
        nearest: the head that is nearest to having it, and its score, in words.
    """
    decision = exists(list(counts.values()))
    if any(counts.values()):
        return decision
    return Decision(decision.verdict, f"{decision.why}; the nearest is {nearest}")


def existing(tested: HeadStatistic | None, reason: str) -> HeadStatistic:
    """A statistic that there is.

    Raises:
        NothingToJudge: there is none, for this reason.
    """
    if tested is None:
        raise NothingToJudge(reason)
    return tested


def trained(corpus: Corpus, model: str) -> list[Run]:
    """The large models whose heads are looked at, by seed.

    Raises:
        NotInRecord: there is none.
    """
    return corpus.need(model=model, size=LARGE, role=TRAINED)


def encoder_of(run: Run) -> list[Head]:
    """The heads of encoder-self."""
    return list(run.each_head(ENCODER_SELF))


def where(model: str) -> str:
    """Which heads these are, in words."""
    return f"{name_of(model)}, {LARGE}, {ENCODER_SELF}"


def p_of_sides(tested: HeadStatistic, corrected: float | None = None) -> str:
    """p of the side that a claim is of, and that of the other side where it is the one that decides.

    Args:
        corrected: instead of the former, after Holm's correction.
    """
    greater = p_value(tested.greater if corrected is None else corrected)
    if tested.less >= LEVEL:
        return greater
    return f"{greater}; of the other side {p_value(tested.less)}"


def as_share(values: Sequence[float]) -> str:
    """As :func:`words.over_seeds`, with each seed's, the interval cut off at 0 and 1."""
    return _between(values, 0.0, signed=False)


def as_correlation(values: Sequence[float]) -> str:
    """As :func:`words.over_seeds`, with each seed's, the interval cut off at -1 and 1."""
    return _between(values, -1.0, signed=True)


def _between(values: Sequence[float], least: float, signed: bool) -> str:
    low, high = seed_interval(values)
    if math.isnan(low):
        return over_seeds(values, signed=signed)
    ends = (float(numpy.mean(values)), max(low, least), min(high, 1.0))
    mean, low_text, high_text = (number(value, signed=signed) for value in ends)
    return f"{mean} [{low_text}, {high_text}] {each_seed(values, signed)}"


def each_seed(values: Sequence[float], signed: bool = False) -> str:
    """What a statistic over heads is of each seed, which its rule asks for: ``(0.37, 0.43)``."""
    return f"({', '.join(number(value, signed=signed) for value in values)})"


def numbers_of(tested: HeadStatistic, name: str = "value") -> dict[str, float]:
    """Of a table's row, for programs."""
    return {
        **interval_numbers(name, tested.values),
        f"{name} p": tested.greater,
        f"{name} p less": tested.less,
    }
