"""Roles of heads, from the measures of the analysis.

Roles are decided as in the analysis' report. A head is positional if 90 % of the queries look at
one offset, and more than half of all do (Voita et al. 2019, section 5.1). It looks at rare words if
half of the queries have their largest weight on one of the two rarest words, in sentences that have
a rare one (section 5.3). It is syntactic if its accuracy on a relation is ten points above that of
the relation's most frequent offset (section 5.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from claims.record import ENCODER_SELF, Head, Run, within
from fairseq_entmax.analysis.measures.offsets import POSITIONAL_SHARE
from fairseq_entmax.analysis.report.roles import ABOVE_BASELINE, FEWEST_ARCS, RARE_WORDS

ADJACENT = ("-1", "1")
POSITIONAL_OF_ALL = 0.5
# Section 5.2's nsubj, dobj, amod and advmod, by their names in Universal Dependencies
RELATIONS = ("nsubj", "obj", "amod", "advmod")
# Numbers in the document are rounded, so a threshold may be missed by the last digit
_ROUNDING = 1e-6


class Accuracy(NamedTuple):
    """The share of a relation's arcs that a head finds, and that the most frequent offset finds."""

    case: str  # such as nsubj to head
    arcs: int
    share: float
    baseline: float

    @property
    def above(self) -> float:
        return self.share - self.baseline

    @property
    def is_syntactic(self) -> bool:
        return self.above >= ABOVE_BASELINE - _ROUNDING


def adjacent_share(head: Head) -> tuple[float, str]:
    """The share of queries with a neighbour that look at it, and the neighbour, ``-1`` or ``1``."""
    shares = head.get("offsets", "share") or {}
    return max((float(shares.get(offset) or 0), offset) for offset in ADJACENT)


def is_positional(head: Head) -> bool:
    return str(head.get("positional", "offset")) in ADJACENT


def rare_word_share(head: Head) -> float:
    """The share of queries whose largest weight is on one of the two rarest words."""
    return float(head.get("rare_word", "two_rarest") or 0.0)


def is_rare_word(head: Head) -> bool:
    return rare_word_share(head) >= RARE_WORDS - _ROUNDING


def accuracies(head: Head) -> list[Accuracy]:
    """The head's accuracy on each relation of section 5.2, both ways; empty without parses."""
    relations = within(head.run.analysis, "annotations", "relations") or {}
    own = head.get("dependencies") or {}
    found = []
    for relation in RELATIONS:
        known = relations.get(relation)
        if known is None or relation not in own or known["count"] < FEWEST_ARCS:
            continue
        for direction in ("to_head", "to_dependent"):
            share, baseline = own[relation][direction], known[direction]["baseline"]
            if share is not None and baseline is not None:
                case = f"{relation} {direction.replace('_', ' ')}"
                found.append(Accuracy(case, known["count"], share, baseline))
    return found


def roles_of(head: Head) -> list[str]:
    """The roles of an encoder head, such as ``position -1``."""
    names = [one.case for one in accuracies(head) if one.is_syntactic]
    if is_positional(head):
        names.append(f"position {int(head.value('positional', 'offset')):+d}")
    return [*names, "rare words"] if is_rare_word(head) else names


def encoder_roles(run: Run) -> set[str]:
    return {role for head in run.each_head(ENCODER_SELF) for role in roles_of(head)}


def without_roles(runs: Sequence[Run]) -> str:
    """A text: no head of their encoders has a role, as far as that is known."""
    if all(accuracies(head) for run in runs for head in run.each_head(ENCODER_SELF)):
        return "no head of the encoder has a role"
    return (
        "no head of the encoder is positional or looks at rare words, and without parses it is not "
        "known which are syntactic"
    )


def role_score(head: Head) -> float:
    """How near an encoder head is to its nearest role, from 0 to 1; it is 1 if it has one.

    Each measure is divided by what its role requires: 90 % at one neighbour (and half of all
    queries there), half of the queries on rare words, or ten points above the baseline.
    """
    share, offset = adjacent_share(head)
    overall = float(head.get("offsets", "maximum", offset) or 0.0)
    position = min(share / POSITIONAL_SHARE, overall / POSITIONAL_OF_ALL)
    syntax = (accuracy.above / ABOVE_BASELINE for accuracy in accuracies(head))
    return min(1.0, max(0.0, position, rare_word_share(head) / RARE_WORDS, *syntax))
