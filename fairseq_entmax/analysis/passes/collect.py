"""Collect counts of a data set, and results of each model, batch by batch in one pass."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis.data import tokens
from fairseq_entmax.analysis.data.annotations.annotated import AnnotatedBatch, Annotations
from fairseq_entmax.analysis.data.batch import Batch
from fairseq_entmax.analysis.data.data_types import type_of_model
from fairseq_entmax.analysis.measures.linguistic import TO_DEPENDENT, TO_HEAD
from fairseq_entmax.analysis.measures.model_measures import MODEL_MEASURES, Predictions
from fairseq_entmax.analysis.measures.rows import Sums
from fairseq_entmax.analysis.measures.source_words import RARE_RANK
from fairseq_entmax.analysis.models import likelihood
from fairseq_entmax.analysis.models.loaded import LoadedModel
from fairseq_entmax.analysis.models.recorder import record_pass
from fairseq_entmax.analysis.passes.statistics import ModelStatistics

# The largest distance between head and dependent, in words, that the document has
FARTHEST = 8


class DataCounts:
    """Counts of what the data set contains; ``ids`` are the sentences seen, 8 bytes each."""

    def __init__(self, annotations: Annotations | None) -> None:
        self.annotated = None if annotations is None else AnnotationCounts(annotations)
        self.ids = array("q")
        self.numbers: Counter[str] = Counter()

    def update(self, sample: Any, batch: Batch) -> None:
        self.ids.extend(sample["id"].tolist())
        if self.annotated is not None and batch.annotated is not None:
            self.annotated.update(batch.annotated)
        source, table = batch.source, batch.table
        _, ending = tokens.final_punctuation(table, source.tokens, ~source.real | source.end)
        rank, _ = tokens.rarest(table.rank[source.tokens])
        counted: dict[str, int | Tensor] = {
            "sentences": len(source.tokens),
            "source_tokens": source.real.sum(),
            "target_tokens": batch.target.real.sum(),
            "interrogative_sentences": (ending == tokens.INTERROGATIVE).sum(),
            "declarative_sentences": (ending == tokens.DECLARATIVE).sum(),
            "rare_word_sentences": (rank >= RARE_RANK).sum(),
        }
        self.numbers.update({name: int(number) for name, number in counted.items()})


class ModelCollector:
    """Results of one model over any number of batches."""

    def __init__(self, loaded: LoadedModel, wanted: Collection[str]) -> None:
        self.loaded = loaded
        self.statistics = ModelStatistics(wanted)
        self.measures = [one for one in MODEL_MEASURES if one.is_of(loaded.model)]
        self.sums = Sums()
        self._data_type = type_of_model(loaded.model)

    def update(self, sample: Any, batch: Batch) -> None:
        """Run the model on a batch and add what it shows."""
        model = self.loaded.model
        attention, output = record_pass(model, sample)
        self.statistics.update(attention, batch)
        log_probs = self._data_type.log_probs(model, sample, output)
        target, counts = self._data_type.targets(model, sample)
        nll = likelihood.negative_log_likelihood(log_probs, target, counts)
        gone = likelihood.unreachable(nll, model)
        loss = nll.masked_fill(gone, 0.0).sum(dtype=torch.float64)
        if not torch.isfinite(loss):
            numbers = ", ".join(map(str, sample["id"].tolist()[:5]))
            raise ValueError(
                f"{self.loaded.path} gives non-finite numbers in one of the sentences {numbers}, … "
                f"of the data set: its training failed, or --fp16 is not enough"
            )
        self.sums.add("loss", loss)
        self.sums.add("unreachable", gone.sum())
        self.sums.add("loss/count", counts.sum() - gone.sum())
        predictions = Predictions(model, output, log_probs, target, counts)
        for measure in self.measures:
            measure.update(predictions, self.sums)


class AnnotationCounts:
    """Counts of a data set's annotations, and a baseline that predicts arcs by position alone.

    The baseline is the share of a relation's arcs at its most frequent offset, in words of the
    text, from query to key. Ties go to the shorter offset, then to the one to the left."""

    def __init__(self, annotations: Annotations) -> None:
        self._annotations, self._sentences = annotations, 0
        # For each relation: the head's offset from the dependent, to how often it occurs
        self._offsets: list[Counter[int]] = [Counter() for _ in annotations.relations]
        self._sums = Sums()

    def update(self, batch: AnnotatedBatch) -> None:
        self._sentences += batch.word.size(0)
        offsets = (batch.arc_head - batch.arc_dependent).tolist()
        for relation, offset in zip(batch.arc_relation.tolist(), offsets, strict=True):
            self._offsets[relation][offset] += 1
        tags = batch.parts_of_speech.sum(dim=1)
        words = (batch.word >= 0).double().sum(dim=1)
        self._sums.add_ratios("tags", tags, tags.sum(dim=1))
        self._sums.add_ratios("entities", batch.entities.sum(dim=1), words)

    def results(self) -> dict[str, Any]:
        """Return ``annotations`` of ``analysis.json``."""
        known, tags = self._annotations, self._sums.mean("tags")
        relations = zip(known.relations, self._offsets, strict=True)
        shares = [] if tags is None else zip(known.parts_of_speech, tags.tolist(), strict=True)
        return {
            "file": known.path,
            "sentences": self._sentences,
            "relations": {name: _baselines(found) for name, found in relations if found} or None,
            "part_of_speech": dict(shares) or None,
            "named_entities": self._sums.total_mean("entities") if known.has_entities else None,
        }


def _baselines(offsets: Counter[int]) -> dict[str, Any]:
    """Return a relation's numbers, given how often its heads are at each offset from dependents."""
    count = offsets.total()
    near = (place for place in range(-FARTHEST, FARTHEST + 1) if offsets[-place])
    places = {str(place): offsets[-place] / count for place in near}
    result: dict[str, Any] = {"count": count, "offsets": places}
    for direction, sign in ((TO_HEAD, 1), (TO_DEPENDENT, -1)):
        offset = min(offsets, key=lambda place: (-offsets[place], abs(place), sign * place))
        result[direction] = {"baseline": offsets[offset] / count, "offset": sign * offset}
    return result
