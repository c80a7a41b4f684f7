"""Measure a dictionary of attention weights, without a data set."""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fairseq_entmax.analysis.data.annotations.annotated import Annotations
from fairseq_entmax.analysis.data.batch import Batch, Side
from fairseq_entmax.analysis.data.data_types import type_of_task
from fairseq_entmax.analysis.passes.statistics import ModelStatistics
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF

_PAD, _END, _WORD = 0, 1, 2

Attention = Dictionary[str, Dictionary[int, Tensor]]
_Lengths: TypeAlias = Tensor | Sequence[int] | None


def measure(
    attention: Attention,
    sample: Dictionary[str, Any] | None = None,
    task: Any = None,
    *,
    annotations: Annotations | None = None,
    source_lengths: _Lengths = None,
    target_lengths: _Lengths = None,
) -> dict[str, dict[int, dict[str, Any]]]:
    """Measure attention weights, such as those of :class:`AttentionRecorder`: every number of
    ``analysis.json`` that follows from weights, so not alpha, the gate, relevance and gradient.

    Args:
        attention: maps ``encoder-self``, ``decoder-self`` and ``cross``, or some of them, to
            layers, and these to weights ``(batch, heads, queries, keys)``, of any floating dtype,
            whose rows are probabilities.
        sample: the batch that they come from, as fairseq's data loader makes it. Without it and
            ``task``, measures that need words are None.
        task: fairseq's task, for its dictionaries.
        annotations: parses of the data set that the sample is from; adds ``dependencies``,
            ``pos_kl``, ``pos_shares`` and ``named_entity``.
        source_lengths: ``(batch,)``, without a sample: how many source tokens are real, after
            padding on the left, as in fairseq. None: all are.
        target_lengths: the same for the decoder's input, whose padding is on the right.

    Returns:
        Attention to layer to ``{"diversity": …, "heads": [{"head": 0, "density": …, …}]}``,
        with the names and definitions of ``analysis.json``.

    Raises:
        ValueError: a sample is given without a task, or annotations without a sample; the weights
            are not probabilities, or do not fit the sentences.
    """
    if (sample is None) != (task is None):
        raise ValueError("give a sample and its task, whose dictionaries say what the tokens are")
    if annotations is not None and sample is None:
        raise ValueError("annotations need the sample that they describe, and its task")
    if not any(attention.values()):
        raise ValueError("there is no attention to measure: the dictionary is empty")
    for name in attention:
        if name not in ATTENTIONS:
            raise ValueError(f"{name!r} is not an attention: use {', '.join(ATTENTIONS)}")
    if sample is not None:
        device = sample["net_input"]["src_tokens"].device
        batch = type_of_task(task).tables(task, device, annotations).batch(sample)
    else:
        batch = _batch_of(attention, source_lengths, target_lengths)
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
            f"sample that they were recorded with, or source_lengths and target_lengths, the "
            f"numbers of real tokens"
        )


def _batch_of(attention: Attention, source_lengths: _Lengths, target_lengths: _Lengths) -> Batch:
    """Make a batch of unknown words that has the shapes of the weights."""
    first = {name: next(iter(layers.values())) for name, layers in attention.items() if layers}
    source = [first[name].size(-1) for name in (ENCODER_SELF, CROSS) if name in first]
    target = [first[name].size(-2) for name in (DECODER_SELF, CROSS) if name in first]
    size, device = next(iter(first.values())).size(0), next(iter(first.values())).device
    sides = []
    for name, lengths_of_side, longest in (
        ("source_lengths", source_lengths, max(source, default=1)),
        ("target_lengths", target_lengths, max(target, default=1)),
    ):
        lengths = torch.as_tensor(
            [longest] * size if lengths_of_side is None else lengths_of_side, device=device
        )
        if lengths.shape != (size,) or bool(((lengths < 1) | (lengths > longest)).any()):
            raise ValueError(
                f"{name} got {lengths.tolist()}: give a number from 1 to {longest} for each of the "
                f"{size} sentences"
            )
        # fairseq pads a source on the left and a target on the right
        is_target = name == "target_lengths"
        start = torch.zeros_like(lengths) if is_target else longest - lengths
        places = torch.arange(longest, device=device)[None] - start[:, None]
        tokens = torch.full_like(places, _WORD)
        tokens[places == (0 if is_target else lengths[:, None] - 1)] = _END
        tokens = tokens.masked_fill((places < 0) | (places >= lengths[:, None]), _PAD)
        sides.append(Side.of(tokens, _PAD, _END, None))
    source_side, target_side = sides
    return Batch(source_side, target_side)
