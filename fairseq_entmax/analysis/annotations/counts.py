"""What the annotations of a data set have in them, and what position alone would tell of them.

Baseline: the share of a relation's arcs at its most frequent offset, in words of the text, from
query to key. Of offsets that are as frequent the shorter counts, then the one to the left.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from fairseq_entmax.analysis.annotations.annotated import AnnotatedBatch, Annotations
from fairseq_entmax.analysis.measures.linguistic import TO_DEPENDENT, TO_HEAD
from fairseq_entmax.analysis.measures.rows import Sums


class AnnotationCounts:
    """Counts of the annotations of a data set, a batch at a time, and the positional baselines."""

    def __init__(self, annotations: Annotations) -> None:
        self._annotations = annotations
        self._sentences = 0
        # For each relation: how often the head stands at an offset from the dependent
        self._offsets: list[Counter[int]] = [Counter() for _ in annotations.relations]
        self._sums = Sums()

    def update(self, batch: AnnotatedBatch) -> None:
        """Add one batch."""
        self._sentences += batch.word.size(0)
        offsets = (batch.arc_head - batch.arc_dependent).tolist()
        for relation, offset in zip(batch.arc_relation.tolist(), offsets, strict=True):
            self._offsets[relation][offset] += 1
        tags = batch.parts_of_speech.sum(dim=1)
        words = (batch.word >= 0).double().sum(dim=1)
        self._sums.add_ratios("tags", tags, tags.sum(dim=1))
        self._sums.add_ratios("entities", batch.entities.sum(dim=1), words)

    def results(self) -> dict[str, Any]:
        """The numbers of ``annotations`` in ``analysis.json``."""
        known, tags, entities = self._annotations, self._sums.mean("tags"), None
        if known.has_entities:
            entities = self._sums.mean("entities")
        relations = zip(known.relations, self._offsets, strict=True)
        shares = [] if tags is None else zip(known.parts_of_speech, tags.tolist(), strict=True)
        return {
            "file": known.path,
            "sentences": self._sentences,
            "relations": {name: _baselines(found) for name, found in relations if found} or None,
            "part_of_speech": dict(shares) or None,
            "named_entities": None if entities is None else float(entities),
        }


def _baselines(offsets: Counter[int]) -> dict[str, Any]:
    """A relation's numbers from how often its heads stand at each offset from the dependent."""
    count = offsets.total()
    result: dict[str, Any] = {"count": count}
    for direction, sign in ((TO_HEAD, 1), (TO_DEPENDENT, -1)):
        offset = min(offsets, key=lambda place: (-offsets[place], abs(place), sign * place))
        result[direction] = {"baseline": offsets[offset] / count, "offset": sign * offset}
    return result
