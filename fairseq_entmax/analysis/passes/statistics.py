"""Apply the measures to every attention of a model, batch by batch in one pass over the data."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from fairseq_entmax.analysis.data.batch import Batch
from fairseq_entmax.analysis.importance import ByHead
from fairseq_entmax.analysis.measures import Measure, WeightMeasure, measures, optional_names
from fairseq_entmax.analysis.measures.base import Fields
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums


class LayerStatistics:
    """Sums of each measure over one attention of one layer."""

    def __init__(self, attention: str, heads: int, wanted: Collection[str] | None = None) -> None:
        self.attention = attention
        self.heads = heads
        names = optional_names() if wanted is None else wanted
        self._measures = [
            one
            for one in measures()
            if isinstance(one, WeightMeasure) and (one.name in names or not one.is_optional)
        ]
        self.sums = {measure.name: Sums() for measure in self._measures}

    def update(self, weights: Tensor, batch: Batch) -> None:
        """Add weights ``(batch, heads, queries, keys)``."""
        seen = LayerWeights(self.attention, weights, batch)
        for measure in self._measures:
            try:
                measure.update(seen, self.sums[measure.name])
            except Exception as error:
                raise ValueError(
                    f"the measure {measure.name} fails: {type(error).__name__}: {error}"
                ) from error

    def results(self) -> Fields:
        """Return the fields of this attention in ``analysis.json`` that follow from its weights."""
        return MeasuredLayer(self.attention, 0, self).results(WeightMeasure)


@dataclass(frozen=True)
class MeasuredLayer:
    """Everything from which measures make the fields of one attention of a layer.

    ``statistics``: of its weights, None if no head is left. ``module``: the attention itself.
    ``importance``: by name, the shares of measures that need passes of their own."""

    attention: str
    number: int
    statistics: LayerStatistics | None
    module: Any = None
    importance: Dictionary[str, ByHead] = field(default_factory=dict)

    def results(self, kind: type[Measure] = Measure) -> Fields:
        """Return the layer's fields, with its heads' in ``heads``, by measures of a class."""
        number = 0 if self.statistics is None else self.statistics.heads
        heads: list[Fields] = [{"head": head} for head in range(number)]
        layer: Fields = {}
        for measure in (one for one in measures() if isinstance(one, kind)):
            nothing: Fields = dict.fromkeys(measure.fields())
            results = (measure.of_heads(self) if heads else None) or [nothing] * number
            for head, fields in zip(heads, results, strict=True):
                head.update(fields)
            layer |= {**dict.fromkeys(measure.layer_fields()), **measure.of_layer(self, heads)}
        return {**layer, "heads": heads}


class ModelStatistics:
    """Sums over a model's attentions, except those without heads."""

    def __init__(self, wanted: Collection[str] | None = None) -> None:
        self.layers: dict[str, dict[int, LayerStatistics]] = {}
        self._wanted = wanted

    def update(self, attention: Dictionary[str, Dictionary[int, Tensor]], batch: Batch) -> None:
        """Add weights as :class:`AttentionRecorder` gives them."""
        for name, layers in attention.items():
            for layer, weights in layers.items():
                known = self.layers.setdefault(name, {})
                if layer not in known:
                    known[layer] = LayerStatistics(name, weights.size(1), self._wanted)
                known[layer].update(weights, batch)
