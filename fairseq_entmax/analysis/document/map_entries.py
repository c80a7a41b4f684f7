"""Entries of ``analysis.json`` with the attention maps of chosen sentences."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from fairseq_entmax.analysis.data.data_types import type_of_task
from fairseq_entmax.analysis.data.samples import samples
from fairseq_entmax.analysis.document.maps import sentence_maps
from fairseq_entmax.analysis.measures.equal_weights import groups_made
from fairseq_entmax.analysis.measures.head_values import HeadValues
from fairseq_entmax.analysis.models.loaded import LoadedModel
from fairseq_entmax.analysis.models.recorder import record_pass
from fairseq_entmax.analysis.passes.statistics import MeasuredLayer
from fairseq_entmax.attention import attention_modules


def maps_of(
    datasets: Sequence[Any],
    sentences: Sequence[int],
    models: Sequence[LoadedModel],
    task: Any,
    is_generated: bool = False,
) -> list[dict[str, Any]]:
    """Return the attention maps of sentences, in the order given, for ``analysis.json``."""
    data_type = type_of_task(task)
    device = next(models[0].model.parameters()).device
    groups = [group_kinds(loaded.model) for loaded in models]
    entries = []
    every = list(range(len(models)))
    together = [[model] for model in every] if is_generated else [every]
    for number, shown in itertools.product(sentences, together):
        (whole,) = samples(datasets[shown[0]], [number], device)
        sample = data_type.for_map(whole)
        passes = {place: record_pass(models[place].model, sample)[0] for place in shown}
        place_of_model = {"model": shown[0]} if is_generated else {}
        maps = [
            sentence_maps(passes[place], of_model) if place in shown else []
            for place, of_model in enumerate(groups)
        ]
        entries.append(
            {"sentence": number, **place_of_model, **data_type.tokens(task, sample), "models": maps}
        )
    return entries


def group_kinds(model: Any) -> dict[tuple[str, int], list[str | None]]:
    """Map (attention, layer) to the kind of equal-weight groups of each head, if any makes some."""
    kinds = {}
    for attention, layer, module in attention_modules(model):
        if module.mapping is not None:
            heads = HeadValues().of_heads(MeasuredLayer(attention, layer, None, module))
            kinds[attention, layer] = [groups_made(head["values"]) for head in heads]
    return {place: of_heads for place, of_heads in kinds.items() if any(of_heads)}
