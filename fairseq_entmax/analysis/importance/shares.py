"""How important heads are to a model, over some sentences of a data set.

Relevance (Voita et al. 2019, section 4) costs as many passes as a sentence has target tokens,
the gradient of the loss (Michel et al. 2019) one each way. So both are worked out for sentences
that are spread evenly over the data set. Both are given as shares of the heads of one layer and
attention, as Voita et al. do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis.importance.relevance import head_relevance
from fairseq_entmax.analysis.importance.sensitivity import head_sensitivity

ByHead = dict[str, dict[int, Tensor]]


def evenly_spread(size: int, number: int) -> list[int]:
    """Numbers of ``number`` sentences of ``size``, or of all where there are fewer."""
    number = min(number, size)
    return [(2 * index + 1) * size // (2 * number) for index in range(number)]


def relevance_shares(model: Any, samples: Iterable[Any]) -> ByHead:
    """The mean share of each head in the relevance of its layer and attention.

    The shares are those of each prediction, and the mean is over predictions.

    Returns:
        Attention to layer to ``(heads,)`` float64 of sum 1, or zeros where the heads of a layer
        have no relevance.

    Raises:
        ValueError: the model has a part without a rule of propagation.
    """
    return _shares(_summed(samples, lambda sample: head_relevance(model, sample).shares()))


def gradient_shares(model: Any, samples: Iterable[Any], padding_idx: int) -> ByHead:
    """The share of each head in the sensitivity of the loss to the heads of its layer.

    Returns:
        As :func:`relevance_shares`.
    """
    return _shares(_summed(samples, lambda sample: head_sensitivity(model, sample, padding_idx)))


def _summed(samples: Iterable[Any], of: Callable[[Any], ByHead]) -> ByHead:
    sums: ByHead = {}
    for sample in samples:
        for attention, layers in of(sample).items():
            for layer, values in layers.items():
                total = values.sum(dim=0, dtype=torch.float64).cpu()
                known = sums.setdefault(attention, {})
                known[layer] = known[layer] + total if layer in known else total
    return sums


def _shares(sums: ByHead) -> ByHead:
    return {
        attention: {
            layer: total / total.sum() if total.sum() > 0 else total
            for layer, total in layers.items()
        }
        for attention, layers in sums.items()
    }
