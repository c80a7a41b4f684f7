"""Choosing the heads to keep by evidence: an ablation, a measure, or their gates.

Source: Michel, Levy, Neubig 2019, *Are Sixteen Heads Really Better than One?*, sections 3 and 4: heads
are ranked by the loss without each, or by the gradient, and the least important are removed.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_entmax.attentions import CROSS
from fairseq_entmax.criterions.penalty import ALL
from fairseq_entmax.criterions.penalty_options import parse_targets
from fairseq_entmax.error_messages import reason
from fairseq_entmax.files import sha256
from fairseq_entmax.head_names import Head, parse_heads
from fairseq_entmax.models.checkpoint_model import CheckpointAttention, CheckpointModel

LOSS, GATES, RANDOM = "loss", "gates", "random"


class Choice(NamedTuple):
    """How many heads of a model to keep, and by which score; those of the largest score stay."""

    keep: str  # a number, or one for each of some attentions: encoder-self=10,cross=16
    by: str  # loss (its growth without the head), gates, random, or a measure of analysis.json
    evidence: str | None = None  # ablation.json for the loss, analysis.json for a measure
    seed: int = 1  # for random

    def removed(self, model: CheckpointModel) -> set[Head]:
        """The open heads to remove; copy heads are the last to be chosen.

        Raises:
            OSError, ValueError: the file is unreadable or of another model; ``keep`` is too large.
        """
        gates = _of_each_head(model, model.gates)
        scores = self._scores(model, list(gates))
        unknown = sorted(map(str, scores.keys() - gates))
        if (copy := model.options.copy) is not None:
            scores |= {Head(CROSS, copy.layer, head): math.inf for head in copy.copy_heads}
        removed: set[Head] = set()
        targets = parse_targets(self.keep, "--keep")
        if targets is None:
            raise ValueError("--keep is empty: give a number of heads, such as 12, or cross=4,…")
        for name, number in targets.items():
            group = [h for h, gate in gates.items() if gate > 0 and name in (ALL, h.attention)]
            if number > (most := len(group)):
                of_group = "" if name == ALL else f" of {name}"
                raise ValueError(
                    f"--keep {self.keep}: {model.path} has {most} open heads{of_group}: give {most} or less"
                )
            unknown += [str(head) for head in group if head not in scores]
            if unknown and self.by == GATES:
                raise ValueError(
                    f"--by {GATES}: {model.path} has no gate on {unknown[0]}: choose heads by {LOSS}, "
                    f"or train gates first"
                )
            if unknown:
                raise ValueError(
                    f"--by {self.by}: {self.evidence} has no score for {unknown[0]}, or "
                    f"{model.path} has no such head: measure all heads of this checkpoint"
                )
            group.sort(key=lambda head: (scores[head], head))
            removed |= {*group[: most - number]}
        return removed

    def _scores(self, model: CheckpointModel, heads: list[Head]) -> dict[Head, float]:
        if self.evidence is not None and self.by in (GATES, RANDOM):
            raise ValueError(f"--by {self.by} reads no --evidence {self.evidence}: leave it out")
        if self.by == RANDOM:
            draw = random.Random(self.seed)
            return {head: draw.random() for head in heads}
        if self.by == GATES:
            return _of_each_head(model, model.gate_scores)
        if self.evidence is None:
            written = "ablate" if self.by == LOSS else "analyze"
            raise ValueError(
                f"--by {self.by} needs --evidence FILE, which {written} writes; only {GATES} and {RANDOM} "
                f"need no file"
            )
        read = _of_ablation if self.by == LOSS else _of_analysis
        try:
            document = json.loads(Path(self.evidence).read_text(encoding="utf-8"))
            scores = read(document, self.by, model.path)
            if not all(map(math.isfinite, scores.values())):
                raise ValueError("a score is not finite")
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(
                f"--by {self.by}: --evidence {self.evidence} has no such score for every head of "
                f"{model.path} ({reason(error)}): give this checkpoint's ablation.json for loss, or its "
                f"analysis.json for a measure such as gradient, relevance or confidence"
            ) from None
        return scores


def _of_each_head(
    model: CheckpointModel, values: Callable[[CheckpointAttention], list[float]]
) -> dict[Head, float]:
    return {
        Head(one.attention, one.layer, number): value
        for one in model.attentions
        for number, value in enumerate(values(one))
    }


def _of_ablation(document: Any, name: str, path: str) -> dict[Head, float]:
    if document["settings"]["checkpoint_sha256"] != sha256(path):
        raise ValueError(f"it is of another checkpoint, {document['checkpoint']}")
    removals = [one for one in document["removals"] if len(one["heads"]) == 1]
    return {parse_heads(one["heads"][0]).pop(): float(one[name]["change"]) for one in removals}


def _of_analysis(document: Any, name: str, path: str) -> dict[Head, float]:
    content, models = sha256(path), document["models"]
    model = next((one for one in models if one["checkpoint_sha256"] == content), None)
    if model is None:
        raise ValueError(f"it is of another checkpoint, {models[0]['checkpoint']}")
    return {
        Head(one["attention"], one["layer"], number): float(head[name])
        for one in model["attentions"]
        for number, head in enumerate(one["heads"])
    }
