"""How spread out the weights of a head are, and how much the heads of a layer disagree."""

from __future__ import annotations

from fairseq_entmax.analysis.measures.base import WeightMeasure
from fairseq_entmax.analysis.measures.rows import LayerWeights, Sums


class Entropy(WeightMeasure):
    """Shannon's entropy of each row, averaged over queries."""

    name, title = "entropy", "Entropy"
    meaning = "entropy of a query's weights, in nats; 0 if one key has all the weight"
    is_main = in_summary = True
    largest = None

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        sums.add_mean("entropy", weights.entropies, weights.queries.real)


class Diversity(WeightMeasure):
    """The divergence between a layer's heads, averaged over queries with two keys or more.

    It is in units of the logarithm of the number of keys: at most 1, and 0 if all heads agree. A
    single head has none."""

    name, title = "diversity", "Diversity of the layer"
    meaning = (
        "Jensen-Shannon divergence between the heads of the layer, the same for each of them; "
        "undefined for a single head"
    )
    source = "Correia et al. 2019, equation 11"
    in_summary = is_of_layer = True

    def update(self, weights: LayerWeights, sums: Sums) -> None:
        if weights.weights.size(1) == 1:
            return
        import torch

        mixture = torch.special.entr(weights.weights.mean(dim=1)).sum(dim=-1)
        divergence = (mixture - weights.entropies.mean(dim=1)).clamp(min=0)
        shares = divergence / weights.attendable.to(weights.weights.dtype).log()
        # Over a single key heads cannot disagree
        counted = weights.queries.real & (weights.attendable > 1)
        sums.add("diversity", shares.masked_fill(~counted, 0).sum(dtype=torch.float64))
        sums.add("diversity/count", counted.sum())
