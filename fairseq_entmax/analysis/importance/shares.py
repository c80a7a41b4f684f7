"""How important heads are to a model, over some sentences of a data set.

Relevance (Voita et al. 2019, section 4) costs as many passes as a sentence has target tokens,
the gradient of the loss (Michel et al. 2019) one each way. So both are worked out for sentences
that are spread evenly over the data set. Both are given as shares of the heads of one layer and
attention, as Voita et al. do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from fairseq_entmax.analysis.measures.base import ByHead, ImportanceMeasure


def evenly_spread(size: int, number: int) -> list[int]:
    """Numbers of ``number`` sentences of ``size``, or of all where there are fewer."""
    number = min(number, size)
    return [(2 * index + 1) * size // (2 * number) for index in range(number)]


def head_shares(
    measure: ImportanceMeasure, model: Any, samples: Iterable[Any], padding_idx: int
) -> ByHead:
    """The share of each head in what the heads of its layer and attention matter.

    Args:
        measure: its importance is summed over all samples.
        model, padding_idx: as for :meth:`ImportanceMeasure.importance`.
        samples: batches as fairseq's data loader makes them.

    Returns:
        Attention to layer to ``(heads,)`` float64 of sum 1, or zeros where the heads of a layer
        do not matter.

    Raises:
        ValueError: as :meth:`ImportanceMeasure.check`.
    """
    sums: ByHead = {}
    for sample in samples:
        for attention, layers in measure.importance(model, sample, padding_idx).items():
            for layer, values in layers.items():
                total = values.sum(dim=0, dtype=torch.float64).cpu()
                known = sums.setdefault(attention, {})
                known[layer] = known[layer] + total if layer in known else total
    return {
        attention: {
            layer: total / total.sum() if total.sum() > 0 else total
            for layer, total in layers.items()
        }
        for attention, layers in sums.items()
    }
