"""The entries of ``analysis.json`` on one model."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

from fairseq_entmax.analysis import loading
from fairseq_entmax.analysis.arguments import GRADIENT, RELEVANCE
from fairseq_entmax.analysis.collect import ModelCollector
from fairseq_entmax.analysis.importance.shares import ByHead, evenly_spread
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.models.head_record import read_record
from fairseq_entmax.modules import attention_modules

logger = logging.getLogger(__name__)

LONGEST_RECORD = 200
NOT_ANNOTATED = {"dependencies": None, "pos_kl": None, "named_entity": None}


def model_entry(
    collector: ModelCollector, importance: dict[str, ByHead], record: list[dict[str, Any]] | None
) -> dict[str, Any]:
    """One of ``models``.

    Args:
        collector: after the pass.
        importance: the shares of heads by relevance and by gradient, as far as wanted.
        record: what :func:`alpha_record` gave.
    """
    loaded = collector.loaded
    return {
        "name": loaded.name,
        "checkpoint": loaded.path,
        "architecture": loaded.architecture,
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "updates": loaded.updates,
        "loss": collector.loss,
        "alpha_record": record,
        "attentions": [
            _layer(collector, attention, layer, module, importance)
            for attention, layer, module in sorted(
                attention_modules(loaded.model), key=lambda one: ATTENTIONS.index(one[0])
            )
        ],
    }


def _layer(
    collector: ModelCollector,
    attention: str,
    layer: int,
    module: Any,
    importance: dict[str, ByHead],
) -> dict[str, Any]:
    statistics = collector.statistics.layers.get(attention, {}).get(layer)
    specs = collector.loaded.model.attention_options.specs
    heads: list[dict[str, Any]] = []
    annotated = collector.linguistic
    linguistic = [] if annotated is None else annotated.results(attention, layer)
    if module.mapping is not None and statistics is not None:
        alphas = torch.as_tensor(module.mapping.alpha).double().expand(module.num_heads).tolist()
        gates = (
            [None] * module.num_heads
            if module.gate is None
            else module.gate.at_evaluation().tolist()
        )
        for head in range(module.num_heads):
            shares = {
                name: float(importance[name][attention][layer][head])
                if name in importance
                else None
                for name in (RELEVANCE, GRADIENT)
            }
            heads.append(
                {
                    "head": head,
                    "alpha": alphas[head],
                    **statistics.head(head),
                    "gate": gates[head],
                    **shares,
                    **(linguistic[head] if linguistic else NOT_ANNOTATED),
                }
            )
    densities = [head["density"] for head in heads]
    return {
        "attention": attention,
        "layer": layer,
        "mapping": str(specs[attention][layer]) if heads else None,
        "diversity": None if statistics is None else statistics.diversity(),
        "density_sorted": None if None in densities else sorted(densities),
        "heads": heads,
    }


def alpha_record(loaded: loading.LoadedModel) -> list[dict[str, Any]] | None:
    """The record of training beside the checkpoint, thinned, up to the checkpoint's update.

    None where there is none, or, with a warning, where it cannot be read.
    """
    path = Path(loaded.path).with_name("alpha.jsonl")
    if not path.is_file():
        return None
    try:
        record = read_record(path)
        for line in record:
            values = [
                v for layers in line["alpha"].values() for row in layers.values() for v in row
            ]
            if not all(1 <= value <= 2 for value in values):
                raise ValueError(f"{path}: at update {line['update']} an alpha is not from 1 to 2")
    except (OSError, ValueError) as error:
        logger.warning("no record of alpha for this model: %s", error)
        return None
    last = loaded.updates
    lines = [line for line in record if last is None or line["update"] <= last]
    if len(lines) > LONGEST_RECORD:
        kept = evenly_spread(len(lines), LONGEST_RECORD - 2)
        lines = [lines[index] for index in sorted({0, *kept, len(lines) - 1})]
    return lines or None
