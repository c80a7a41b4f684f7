"""The measures on a dictionary of attention weights, without a data set."""

from __future__ import annotations

from collections.abc import Mapping as Dictionary
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis.batch import Batch, Side
from fairseq_entmax.analysis.statistics import ModelStatistics
from fairseq_entmax.analysis.tokens import TokenTable
from fairseq_entmax.attentions import CROSS, DECODER_SELF, ENCODER_SELF

_PAD, _END, _WORD = 0, 1, 2


def measure(
    attention: Dictionary[str, Dictionary[int, Tensor]],
    sample: Dictionary[str, Any] | None = None,
    task: Any = None,
    *,
    source_lengths: Tensor | None = None,
    target_lengths: Tensor | None = None,
    has_end: bool = True,
) -> dict[str, dict[int, dict[str, Any]]]:
    """Measure weights of attention, such as :class:`AttentionRecorder` gives.

    Args:
        attention: ``encoder-self``, ``decoder-self`` and ``cross``, those there are, to layer
            to weights ``(batch, heads, queries, keys)``.
        sample: the batch they come from, as fairseq's data loader makes it. With it and
            ``task`` all measures are made; without it those that need no words.
        task: fairseq's task, for its dictionaries.
        source_lengths: ``(batch,)``: without a sample, how many source tokens are real;
            padding is on the left, as fairseq has it. None: all are.
        target_lengths: likewise of the decoder's input, whose padding is on the right.
        has_end: without a sample, whether the last source token, and the first of the
            decoder's input, are ends of sentences.

    Returns:
        Attention to layer to ``{"diversity": …, "heads": [{"head": 0, "density": …, …}]}``,
        with the names and definitions of ``analysis.json``.

    Raises:
        ValueError: a sample is given without a task, or the shapes do not fit together.
    """
    if (sample is None) != (task is None):
        raise ValueError("give a sample and its task, whose dictionaries say what the tokens are")
    if sample is not None:
        source, target = task.source_dictionary, task.target_dictionary
        device = sample["net_input"]["src_tokens"].device
        batch = Batch.of(
            sample,
            source.pad(),
            source.eos(),
            TokenTable.of(source, task.cfg.source_lang).to(device),
            TokenTable.of(target, task.cfg.target_lang).to(device),
        )
    else:
        batch = _batch_of(attention, source_lengths, target_lengths, has_end)
    _check_shapes(attention, batch)
    statistics = ModelStatistics()
    statistics.update(attention, batch)
    return {
        name: {
            layer: {
                "diversity": one.diversity(),
                "heads": [{"head": head, **one.head(head)} for head in range(one.heads)],
            }
            for layer, one in layers.items()
        }
        for name, layers in statistics.layers.items()
    }


def _batch_of(
    attention: Dictionary[str, Dictionary[int, Tensor]],
    source_lengths: Tensor | None,
    target_lengths: Tensor | None,
    has_end: bool,
) -> Batch:
    """Sentences of unknown words, of the shapes that the weights have."""
    shapes = {name: next(iter(layers.values())).shape for name, layers in attention.items()}
    if not shapes:
        raise ValueError("there is no attention to measure: the dictionary is empty")
    sizes = [shape[0] for shape in shapes.values()]
    source = [shapes[n][3] for n in (ENCODER_SELF, CROSS) if n in shapes]
    target = [shapes[n][2] for n in (DECODER_SELF, CROSS) if n in shapes]
    device = next(iter(next(iter(attention.values())).values())).device
    source_tokens = torch.full((sizes[0], max(source, default=1)), _WORD, device=device)
    target_tokens = torch.full((sizes[0], max(target, default=1)), _WORD, device=device)
    if has_end:
        source_tokens[:, -1] = _END
        target_tokens[:, 0] = _END
    if source_lengths is not None:
        places = torch.arange(source_tokens.size(1), device=device)
        padding = source_tokens.size(1) - source_lengths.to(device)
        source_tokens[places < padding[:, None]] = _PAD
    if target_lengths is not None:
        places = torch.arange(target_tokens.size(1), device=device)
        target_tokens[places >= target_lengths.to(device)[:, None]] = _PAD
    return Batch(Side.of(source_tokens, _PAD, _END, None), Side.of(target_tokens, _PAD, _END, None))


def _check_shapes(attention: Dictionary[str, Dictionary[int, Tensor]], batch: Batch) -> None:
    for name, layers in attention.items():
        if name not in (ENCODER_SELF, DECODER_SELF, CROSS):
            raise ValueError(
                f"{name!r} is no attention: use {ENCODER_SELF}, {DECODER_SELF} or {CROSS}"
            )
        queries, keys = batch.sides(name)
        wanted = (*queries.tokens.shape, keys.tokens.size(1))
        for layer, weights in layers.items():
            given = tuple(weights.shape)
            if len(given) != 4 or (given[0], *given[2:]) != wanted:
                raise ValueError(
                    f"the weights of {name}, layer {layer}, have the shape {given}: they must be "
                    f"(batch, heads, queries, keys) with {wanted[0]} sentences, {wanted[1]} queries "
                    f"and {wanted[2]} keys"
                )
