"""Chosen sentences of a data set: in batches, and as maps of attention."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from fairseq import utils

from fairseq_entmax.analysis.data_types import kind_of_task
from fairseq_entmax.analysis.data_types.classes import Classification
from fairseq_entmax.analysis.loading import load_dataset
from fairseq_entmax.analysis.maps import sentence_maps
from fairseq_entmax.analysis.measures.equal_weights import groups_made
from fairseq_entmax.analysis.measures.head_values import HeadValues
from fairseq_entmax.analysis.models import LoadedModel
from fairseq_entmax.analysis.recorder import record_pass
from fairseq_entmax.analysis.statistics import MeasuredLayer
from fairseq_entmax.attention import attention_modules


def samples(
    dataset: Any,
    sentences: Sequence[int],
    device: torch.device,
    at_once: int = 1,
    max_tokens: int | None = None,
) -> Iterator[Any]:
    """Batches of given sentences of a data set, those of a like length together."""
    batches: list[list[int]] = []
    for number in sorted(sentences, key=dataset.num_tokens):
        size = len(batches[-1]) if batches else at_once
        tokens = (size + 1) * int(dataset.num_tokens(number))
        if size >= at_once or (max_tokens is not None and tokens > max_tokens):
            batches.append([])
        batches[-1].append(number)
    for batch in batches:
        yield on_device(dataset.collater([dataset[number] for number in batch]), device)


def load_samples(
    task: Any, subset: str, sentences: Sequence[int], at_once: int = 1, device: str = "cpu"
) -> list[Any]:
    """Batches of sentences by their numbers in the data set, for notebooks: those of a like length
    together, ``at_once`` to a batch."""
    dataset = load_dataset(task, subset)
    return list(samples(dataset, sentences, torch.device(device), at_once))


def maps_of(
    datasets: Sequence[Any],
    sentences: Sequence[int],
    models: Sequence[LoadedModel],
    task: Any,
    is_generated: bool = False,
    outcomes: Sequence[Classification | None] = (),
) -> list[dict[str, Any]]:
    """The attention maps of sentences, in the order given, as ``analysis.json`` has them."""
    kind = kind_of_task(task)
    device = next(models[0].model.parameters()).device
    groups = [group_kinds(loaded.model) for loaded in models]
    entries = []
    every = list(range(len(models)))
    together = [[model] for model in every] if is_generated else [every]
    for number, shown in itertools.product(sentences, together):
        (whole,) = samples(datasets[shown[0]], [number], device)
        sample = kind.for_map(whole)
        passes = {place: record_pass(models[place].model, sample) for place in shown}
        own = {"model": shown[0]} if is_generated else {}
        maps = [
            sentence_maps(passes[place][0], of_model) if place in shown else []
            for place, of_model in enumerate(groups)
        ]
        entries.append(
            {"sentence": number, **own, **kind.tokens(task, sample), "models": maps}
            | kind.said_of(sample, [one[1] for one in passes.values()], outcomes)
        )
    return entries


def group_kinds(model: Any) -> dict[tuple[str, int], list[str | None]]:
    """(attention, layer) to the groups of equal weight that each head's mapping makes, if any does."""
    kinds = {}
    for attention, layer, module in attention_modules(model):
        if module.mapping is not None:
            heads = HeadValues().of_heads(MeasuredLayer(attention, layer, None, module))
            kinds[attention, layer] = [groups_made(head["values"]) for head in heads]
    return {place: of_heads for place, of_heads in kinds.items() if any(of_heads)}


def on_device(sample: Any, device: torch.device) -> Any:
    """A batch of fairseq's, on a device."""
    return utils.move_to_cuda(sample, device) if device.type == "cuda" else sample
