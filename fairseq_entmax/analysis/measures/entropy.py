"""How spread out the weights of a head are, and how much the heads of a layer disagree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fairseq_entmax.analysis.measures.base import Fields, Number, WeightMeasure

if TYPE_CHECKING:
    from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums


class Entropy(WeightMeasure):
    """Shannon's entropy of each row, its mean over queries."""

    name = "entropy"
    numbers = (
        Number(
            "entropy",
            "Entropy",
            "of the weights of a query, in nats; 0 where one key has all",
            ("entropy",),
            is_main=True,
            in_summary=True,
            largest=None,
        ),
    )

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        sums.add_mean("entropy", weights.entropies, weights.queries.real)

    def result(self, sums: Sums, head: int) -> Fields:
        return {"entropy": sums.of("entropy", head)}


class Diversity(WeightMeasure):
    """The divergence of a layer's heads, its mean over queries with two keys or more."""

    name = "diversity"
    source = "Correia et al. 2019, equation 11"
    numbers = (
        Number(
            "diversity",
            "Diversity of the layer",
            "Jensen-Shannon divergence between the heads of the layer, the same for each of them",
            ("diversity",),
            in_summary=True,
            of_layer=True,
        ),
    )

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        total, number = weights.diversity
        sums.add("diversity", total.sum())
        sums.add("diversity/count", number.sum())

    def result(self, sums: Sums, head: int) -> Fields:
        """Nothing: it is of all heads together."""
        del sums, head
        return {}

    def of_layer(self, layer: Any, heads: Sequence[Fields]) -> Fields:
        sums = layer.statistics and layer.statistics.sums.get(self.name)
        mean = sums.mean("diversity") if sums else None
        return {"diversity": None if mean is None else float(mean)}
