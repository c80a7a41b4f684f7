"""Measure a dictionary of attention weights, without a data set."""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis.data.annotations.annotated import Annotations
from fairseq_entmax.analysis.data.batch import Batch
from fairseq_entmax.analysis.data.data_types import type_of_task
from fairseq_entmax.analysis.passes.statistics import ModelStatistics
from fairseq_entmax.attentions import ATTENTIONS, DECODER_SELF

Attention = Dictionary[str, Dictionary[int, Tensor]]


def measure(
    attention: Attention,
    sample: Dictionary[str, Any],
    task: Any,
    *,
    annotations: Annotations | None = None,
) -> dict[str, dict[int, dict[str, Any]]]:
    """Measure attention weights, such as those of :class:`AttentionRecorder`: every number of
    ``analysis.json`` that follows from weights, so not alpha, the gate, relevance and gradient.

    Args:
        attention: maps ``encoder-self``, ``decoder-self`` and ``cross``, or some of them, to
            layers, and these to weights ``(batch, heads, queries, keys)``, of any floating dtype,
            whose rows are probabilities.
        sample: the batch that they come from, as fairseq's data loader makes it.
        task: fairseq's task, for its dictionaries.
        annotations: parses of the data set that the sample is from; adds ``dependencies``,
            ``pos_kl``, ``pos_shares`` and ``named_entity``.

    Returns:
        Attention to layer to ``{"diversity": …, "heads": [{"head": 0, "density": …, …}]}``,
        with the names and definitions of ``analysis.json``.

    Raises:
        ValueError: the weights are not probabilities, or do not fit the sentences.
    """
    if not any(attention.values()):
        raise ValueError("there is no attention to measure: the dictionary is empty")
    for name in attention:
        if name not in ATTENTIONS:
            raise ValueError(f"{name!r} is not an attention: use {', '.join(ATTENTIONS)}")
    device = sample["net_input"]["src_tokens"].device
    batch = type_of_task(task).tables(task, device, annotations).batch(sample)
    precise: dict[str, dict[int, Tensor]] = {}
    for name, layers in attention.items():
        for layer, weights in layers.items():
            _check_weights(f"the weights of {name}, layer {layer},", name, weights, batch)
            dtype = torch.promote_types(weights.dtype, torch.float32)
            precise.setdefault(name, {})[layer] = weights.to(dtype)
    statistics = ModelStatistics()
    statistics.update(precise, batch)
    return {
        name: {layer: one.results() for layer, one in layers.items()}
        for name, layers in statistics.layers.items()
    }


def _check_weights(what: str, name: str, weights: Tensor, batch: Batch) -> None:
    """Refuse weights that cannot be attention between these sentences."""
    queries, keys = batch.sides(name)
    sentences, length = queries.tokens.shape
    shape = tuple(weights.shape)
    if len(shape) != 4 or (shape[0], *shape[2:]) != (sentences, length, keys.tokens.size(1)):
        raise ValueError(
            f"{what} have the shape {shape}: they must be (batch, heads, queries, keys) with "
            f"{sentences} sentences, {length} queries and {keys.tokens.size(1)} keys"
        )
    totals = weights.float().sum(dim=-1)
    # Rows are zero at padding; half precision rounds every weight
    is_row = ((totals - 1).abs() < 0.02) | (totals == 0)
    if not bool(is_row.all()) or bool((weights < 0).any()):
        raise ValueError(
            f"{what} are not probabilities: each query's must be 0 or more and add up to 1"
        )
    # (batch, 1, queries, keys)
    hidden = queries.real[:, None, :, None] & ~keys.real[:, None, None, :]
    if name == DECODER_SELF:
        hidden = hidden | torch.ones_like(hidden).triu(1)
    wrong = (weights.ne(0) & hidden).flatten(1).any(dim=1)
    if bool(wrong.any()):
        unread = ", or on tokens that a decoder has not read," * (name == DECODER_SELF)
        raise ValueError(
            f"{what} fall on padding{unread} in sentence {int(wrong.int().argmax())}: give the "
            f"sample that they were recorded with"
        )
