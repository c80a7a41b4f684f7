"""How much weight a head puts on a single key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairseq_entmax.analysis.measures.base import WeightMeasure
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums
from fairseq_entmax.attentions import DECODER_SELF

if TYPE_CHECKING:
    from torch import Tensor


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
        is_end = keys.end & keys.real
        if weights.attention == DECODER_SELF:
            ends = is_end.cumsum(dim=1)
        else:
            ends = is_end.sum(dim=1, keepdim=True)
        # The decoder's first query sees only an end of a sentence
        has_other = weights.queries.real & (weights.attendable > ends)
        sums.add_mean("confidence", _largest(weights.weights, keys.end), has_other)


def _largest(weights: Tensor, left_out: Tensor) -> Tensor:
    """Return the largest weight of each row, not on keys ``left_out``, ``(batch, keys)`` bool."""
    columns = left_out.any(dim=0).nonzero().flatten().tolist()
    last = left_out.size(1) - 1
    if last and columns in ([0], [last]) and bool(left_out[:, columns[0]].all()):
        # All are at one edge, as fairseq pads: a view is enough, without a copy
        return weights[..., slice(1, None) if columns == [0] else slice(None, -1)].amax(dim=-1)
    return weights.masked_fill(left_out[:, None, None], 0.0).amax(dim=-1)
