"""What heads do, by the measures of the analysis, and what a model loses without them.

Roles are decided as in the analysis' report: positional where 90 % of the queries look at one
offset and more than half of all do (Voita et al. 2019, section 5.1), rare words where the largest
weight of half of the queries is on one of the two rarest words, in sentences that have a rare one (section 5.3),
syntactic where the accuracy on a relation is ten points above that of its most frequent offset
(section 5.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from claims.record import ENCODER_SELF, Head, NotInRecord, Run

ADJACENT = ("-1", "1")
POSITIONAL_SHARE, POSITIONAL_OF_ALL = 0.9, 0.5
RARE_WORDS = 0.5
SYNTACTIC_POINTS = 0.1
# From how many arcs on an accuracy is known to within 7 points
FEWEST_ARCS = 50
# Section 5.2's nsubj, dobj, amod and advmod, as Universal Dependencies name them
RELATIONS = ("nsubj", "obj", "amod", "advmod")
DIRECTIONS = ("to_head", "to_dependent")
LOSS, BLEU = "loss", "bleu"
# Numbers of the document are rounded: a border may be missed by the last digit
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Accuracy:
    """How often a head finds the other word of a relation.

    Attributes:
        case: such as ``nsubj to head``.
        arcs: how many there are, 50 or more.
        share: of them that the head finds, in [0, 1].
        baseline: share that the relation's most frequent offset finds, in [0, 1].
    """

    case: str
    arcs: int
    share: float
    baseline: float

    @property
    def above(self) -> float:
        """Above the baseline, as a share."""
        return self.share - self.baseline

    @property
    def is_syntactic(self) -> bool:
        """Whether it is ten points above the baseline (Voita et al. 2019, section 5.2)."""
        return self.above >= SYNTACTIC_POINTS - _ROUNDING


def adjacent_share(head: Head) -> tuple[float, str]:
    """Which neighbour a head looks at most, and how often.

    Returns:
        Of the queries that have this neighbour the share that do, and ``-1`` or ``1``.
    """
    shares = _within(head.measures, "offsets", "share") or {}
    return max((float(shares.get(offset) or 0), offset) for offset in ADJACENT)


def is_positional(head: Head) -> bool:
    """Whether it looks at an adjacent token 90 % of the time (Voita et al. 2019, section 5.1)."""
    return str(_within(head.measures, "positional", "offset")) in ADJACENT


def rare_word_share(head: Head) -> float | None:
    """Of which share of the queries the largest weight is on one of its sentence's two rarest words.

    Queries of sentences without a rare word are left out.
    """
    value = _within(head.measures, "rare_word", "two_rarest")
    return None if value is None else float(value)


def is_rare_word(head: Head) -> bool:
    """Whether that is so of half of the queries (Voita et al. 2019, section 5.3)."""
    return (rare_word_share(head) or 0.0) >= RARE_WORDS - _ROUNDING


def accuracies(head: Head, run: Run) -> list[Accuracy]:
    """The head on each relation of section 5.2, in both directions; none without parses."""
    relations = _within(run.analysis, "annotations", "relations") or {}
    own = head.measures.get("dependencies") or {}
    found = []
    for relation in RELATIONS:
        known = relations.get(relation)
        if known is None or relation not in own or known["count"] < FEWEST_ARCS:
            continue
        for direction in DIRECTIONS:
            share, baseline = own[relation][direction], known[direction]["baseline"]
            if share is not None and baseline is not None:
                case = f"{relation} {direction.replace('_', ' ')}"
                found.append(Accuracy(case, known["count"], share, baseline))
    return found


def encoder_roles(run: Run) -> dict[str, list[Head]]:
    """Each role that heads of the encoder have, such as ``position -1``, and those heads."""
    roles: dict[str, list[Head]] = {}
    for head in run.each_head(ENCODER_SELF):
        names = [f"{one.case}" for one in accuracies(head, run) if one.is_syntactic]
        if is_positional(head):
            names.append(f"position {int(head.value('positional', 'offset')):+d}")
        if is_rare_word(head):
            names.append("rare words")
        for name in names:
            roles.setdefault(name, []).append(head)
    return roles


def without_roles(runs: Sequence[Run]) -> str:
    """That no head of their encoders has a role, and of which roles that can be said."""
    parsed = all(accuracies(head, run) for run in runs for head in run.each_head(ENCODER_SELF))
    if parsed:
        return "no head of the encoder has a role"
    return (
        "no head of the encoder is positional or looks at rare words, and without parses it is not "
        "known which are syntactic"
    )


def role_score(head: Head, run: Run) -> float:
    """How near an encoder head is to its nearest role: from 0 to 1, where it has one.

    Each measure counts as a share of what its role asks for: of 90 % at one neighbour (and of
    half of all queries there), of half of the queries, of ten points above the baseline.
    """
    share, offset = adjacent_share(head)
    overall = _within(head.measures, "offsets", "maximum", offset) or 0.0
    scores = [
        min(share / POSITIONAL_SHARE, float(overall) / POSITIONAL_OF_ALL),
        (rare_word_share(head) or 0.0) / RARE_WORDS,
        *(accuracy.above / SYNTACTIC_POINTS for accuracy in accuracies(head, run)),
    ]
    return min(1.0, max(0.0, *scores))


@dataclass(frozen=True)
class Harm:
    """What a model loses without one head.

    Attributes:
        loss: how much worse it is: nats a token, or points of BLEU; below 0 where it is better.
        p: after Holm's correction for all heads of the model.
    """

    loss: float
    p: float


def removals(run: Run, score: str) -> dict[str, Harm]:
    """What the model loses without each head, by the head's name.

    Args:
        score: ``loss`` or ``bleu``.

    Raises:
        NotInRecord: the run has no ablation with this score.
    """
    found = {}
    for removal in (run.ablation or {}).get("removals", []):
        result = removal.get(score)
        if result is not None and result.get("p_holm") is not None and len(removal["heads"]) == 1:
            change = float(result["change"])
            worse = change if score == LOSS else -change
            found[removal["heads"][0]] = Harm(worse, float(result["p_holm"]))
    if not found:
        raise NotInRecord(f"the record has no ablation of {run.run} with {score}")
    return found


def _within(measures: Mapping[str, Any], *path: str) -> Any:
    """What is at this place, or None where the analysis has nothing there."""
    found: Any = measures
    for key in path:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found
