"""How much weight a head puts on a single key."""

from __future__ import annotations

from fairseq_entmax.analysis.measures.base import WeightMeasure
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums
from fairseq_entmax.attentions import DECODER_SELF


class Confidence(WeightMeasure):
    """The largest weight of each row on a key that is not an end of a sentence."""

    name, title = "confidence", "Confidence"
    meaning = (
        "largest weight of a query on a key that is not an end of a sentence, mean over queries"
    )
    source = "Voita et al. 2019, section 4"
    is_main = in_summary = True

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        keys = weights.keys
        if weights.attention == DECODER_SELF:
            ends = keys.end.cumsum(dim=1)
        else:
            ends = keys.end.sum(dim=1, keepdim=True)
        # The decoder's first query sees only an end of a sentence
        has_other = weights.queries.real & (weights.attendable > ends)
        largest = weights.weights.masked_fill(keys.end[:, None, None], 0.0).amax(dim=-1)
        sums.add_mean("confidence", largest, has_other)
