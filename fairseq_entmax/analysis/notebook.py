"""The measures on a dictionary of attention weights, without a data set."""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from fairseq_entmax.analysis.annotations.annotated import Annotations
from fairseq_entmax.analysis.batch import Batch, Side
from fairseq_entmax.analysis.kinds import kind_of_task
from fairseq_entmax.analysis.padding import (
    check_causal,
    check_no_padding,
    check_not_too_long,
    check_passes,
    on_padding,
)
from fairseq_entmax.analysis.recorder import RecordedAttention
from fairseq_entmax.analysis.statistics import ModelStatistics
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
    has_end: bool = True,
) -> dict[str, dict[int, dict[str, Any]]]:
    """Measure weights of attention, such as :class:`AttentionRecorder` gives.

    Every number of ``analysis.json`` that follows from weights. Those that need the model are
    elsewhere: alpha and gate are the attention's own, relevance is of :func:`head_relevance`, the
    gradient of :func:`head_sensitivity`.

    Args:
        attention: ``encoder-self``, ``decoder-self`` and ``cross``, those there are, to layer
            to weights ``(batch, heads, queries, keys)``, of any floating dtype, rows of
            probabilities.
        sample: the batch they come from, as fairseq's data loader makes it. Without it and
            ``task`` the measures that need words are None.
        task: fairseq's task, for its dictionaries.
        annotations: parses of the data set that the sample is from; adds ``dependencies``,
            ``pos_kl``, ``pos_shares`` and ``named_entity``.
        source_lengths: ``(batch,)``: without a sample, how many source tokens are real. Padding
            is where the weights have none, on the left, as fairseq has it, or on the right. None:
            all are, which is believed only if the weights do not look padded.
        target_lengths: likewise of the decoder's input, whose padding is on the right.
        has_end: without a sample, whether the last source token, and the first of the
            decoder's input, are ends of sentences.

    Returns:
        Attention to layer to ``{"diversity": …, "heads": [{"head": 0, "density": …, …}]}``,
        with the names and definitions of ``analysis.json``.

    Raises:
        ValueError: a sample is given without a task or annotations without a sample, weights
            are no probabilities, or shapes do not fit together; the weights are of one step of
            decoding, or the last of several passes; there may be padding, and no lengths are
            given, or they are not those of the weights, or no whole numbers; a length that is too
            long is told where a head gives weight to every key of other sentences.
    """
    if (sample is None) != (task is None):
        raise ValueError("give a sample and its task, whose dictionaries say what the tokens are")
    if annotations is not None and sample is None:
        raise ValueError("annotations need the sample that they are of, and its task")
    _check_weights(attention)
    check_passes(attention, sample is not None, target_lengths is not None)
    if sample is not None:
        device = sample["net_input"]["src_tokens"].device
        batch = kind_of_task(task).tables(task, device, annotations).batch(sample)
        _check_shapes(attention, batch)
        _check_sample(attention, batch)
    else:
        batch = _batch_of(attention, source_lengths, target_lengths, has_end)
    check_causal(attention)
    wide = {
        name: {
            n: one.to(torch.promote_types(one.dtype, torch.float32)) for n, one in layers.items()
        }
        for name, layers in attention.items()
    }
    statistics = ModelStatistics()
    statistics.update(wide, batch)
    if isinstance(attention, RecordedAttention):
        attention.unmeasured_passes = 0
    return {
        name: {layer: one.results() for layer, one in layers.items()}
        for name, layers in statistics.layers.items()
    }


def _check_weights(attention: Attention) -> None:
    if not any(attention.values()):
        raise ValueError("there is no attention to measure: the dictionary is empty")
    for name, layers in attention.items():
        if name not in ATTENTIONS:
            raise ValueError(f"{name!r} is no attention: use {', '.join(ATTENTIONS)}")
        for layer, weights in layers.items():
            if weights.dim() != 4 or not weights.is_floating_point():
                raise ValueError(
                    f"the weights of {name}, layer {layer}, have the shape {tuple(weights.shape)} "
                    f"and are {weights.dtype}: they must be (batch, heads, queries, keys) of "
                    f"floating point"
                )
            totals = weights.float().sum(dim=-1)
            # Zero at padding; half precision rounds every weight
            is_row = (totals - 1).abs() < 0.02
            if not bool((is_row | (totals == 0)).all()) or bool((weights < 0).any()):
                raise ValueError(
                    f"the weights of {name}, layer {layer}, are no probabilities: each query's "
                    f"must be 0 or more and add up to 1"
                )


def _check_sample(attention: Attention, batch: Batch) -> None:
    wrong = on_padding(attention, batch)
    if wrong is not None:
        name, layer, sentence = wrong
        raise ValueError(
            f"the weights of {name}, layer {layer}, are not of this sample: in sentence {sentence} "
            f"they are on its padding; give the sample that they were recorded with"
        )


def _batch_of(
    attention: Attention, source_lengths: _Lengths, target_lengths: _Lengths, has_end: bool
) -> Batch:
    """Sentences of unknown words, of the shapes that the weights have."""
    first = {name: next(iter(layers.values())) for name, layers in attention.items() if layers}
    source = max(
        (first[name].size(3) for name in (ENCODER_SELF, CROSS) if name in first), default=1
    )
    target = max(
        (first[name].size(2) for name in (DECODER_SELF, CROSS) if name in first), default=1
    )
    size, device = next(iter(first.values())).size(0), next(iter(first.values())).device
    whole = torch.full((size, max(source, target)), _WORD, device=device)
    _check_shapes(attention, Batch(_side(whole[:, :source]), _side(whole[:, :target])))
    check_no_padding(attention, source_lengths is not None, target_lengths is not None)
    lengths = [
        _checked("source_lengths", source_lengths, whole[:, :source]),
        _checked("target_lengths", target_lengths, whole[:, :target]),
    ]
    # As fairseq has padding first: on the left of a source, on the right of a target
    batches = [
        Batch(
            _side(_tokens(lengths[0], source, source_left, has_end, end_first=False)),
            _side(_tokens(lengths[1], target, target_left, has_end, end_first=True)),
        )
        for source_left, target_left in ((True, False), (False, False), (True, True), (False, True))
    ]
    # Queries of padding look at padding in no model here, but may elsewhere
    for of_real_queries in (False, True):
        for batch in batches:
            if on_padding(attention, batch, of_real_queries) is None:
                check_not_too_long(attention, batch)
                return batch
    raise ValueError(
        f"source_lengths {lengths[0].tolist()} and target_lengths {lengths[1].tolist()} are not "
        f"those of these weights, which are on tokens that would be padding then: give the lengths "
        f"without padding"
    )


def _side(tokens: Tensor) -> Side:
    return Side.of(tokens, _PAD, _END, None)


def _checked(name: str, lengths: _Lengths, tokens: Tensor) -> Tensor:
    """The lengths ``(batch,)`` of sentences of tokens ``(batch, length)``; None is all of it."""
    size, longest = tokens.shape
    if lengths is None:
        return torch.full((size,), longest, device=tokens.device)
    known = torch.as_tensor(lengths, device=tokens.device)
    if known.is_floating_point() or known.dtype == torch.bool:
        raise ValueError(f"{name} got {known.tolist()}: give whole numbers of tokens")
    if known.shape != (size,) or bool(((known < 1) | (known > longest)).any()):
        raise ValueError(
            f"{name} got {known.tolist()}: give a number from 1 to {longest} for each of the "
            f"{size} sentences"
        )
    return known


def _tokens(lengths: Tensor, longest: int, on_left: bool, has_end: bool, end_first: bool) -> Tensor:
    """Sentences ``(batch, longest)`` of unknown words.

    Args:
        lengths: ``(batch,)``, without padding.
        on_left: whether padding is on the left.
        has_end: whether they have the mark of an end.
        end_first: whether that mark stands in front.
    """
    start = (longest - lengths if on_left else torch.zeros_like(lengths))[:, None]
    places = torch.arange(longest, device=lengths.device)[None] - start
    tokens = torch.full_like(places, _WORD)
    if has_end:
        tokens[places == (0 if end_first else lengths[:, None] - 1)] = _END
    return tokens.masked_fill((places < 0) | (places >= lengths[:, None]), _PAD)


def _check_shapes(attention: Attention, batch: Batch) -> None:
    for name, layers in attention.items():
        queries, keys = batch.sides(name)
        wanted = (*queries.tokens.shape, keys.tokens.size(1))
        for layer, weights in layers.items():
            shape = tuple(weights.shape)
            if (shape[0], *shape[2:]) != wanted:
                raise ValueError(
                    f"the weights of {name}, layer {layer}, have the shape {shape}: they must be "
                    f"(batch, heads, queries, keys) with {wanted[0]} sentences, {wanted[1]} queries "
                    f"and {wanted[2]} keys"
                )
