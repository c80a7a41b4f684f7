"""How much of a sentence a head attends to."""

from __future__ import annotations

from typing import ClassVar

from fairseq_entmax.analysis.measures.base import Fields, JsonSchema, WeightMeasure
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums

BINS = 20


class Density(WeightMeasure):
    """The share of attendable keys with a weight above zero, and its histogram over sentences."""

    name, title = "density", "Density"
    meaning = (
        "share of the keys that get a weight above zero; softmax gives one to every key in exact "
        "arithmetic, but in float32 scores more than about 100 apart underflow to zeros"
    )
    source = "Correia et al. 2019, figure 4"
    is_main = in_summary = True
    settings: ClassVar = {"density_bins": BINS}

    def fields(self) -> dict[str, JsonSchema]:
        text = f"Sentence counts in {BINS} equal bins of mean density from 0 to 1 ({self.source})."
        counts = {"type": ["array", "null"], "items": {"$ref": "#/$defs/count"}}
        size = {"minItems": BINS, "maxItems": BINS, "description": text}
        return {**super().fields(), "density_histogram": {**counts, **size}}

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        import torch

        real = weights.queries.real
        densities = weights.support / weights.attendable[:, None]
        sums.add_mean("density", densities, real)
        total = densities.masked_fill(~real[:, None], 0).sum(dim=2, dtype=torch.float64)
        by_sentence = total / weights.queries.lengths.clamp(min=1)[:, None]
        # Rounding must not move a mean on the edge of a bin into the bin below
        bins = (by_sentence * BINS + 1e-9).long().clamp(max=BINS - 1)
        sums.add("histogram", torch.nn.functional.one_hot(bins, BINS).sum(dim=0))

    def result(self, sums: Sums, head: int) -> Fields:
        histogram = sums["histogram"][head].long().tolist()
        return {**super().result(sums, head), "density_histogram": histogram}
