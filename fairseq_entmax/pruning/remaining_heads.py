"""The heads that remain in a model, and checks of those to remove."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import torch

from fairseq_entmax.attentions import CROSS
from fairseq_entmax.head_names import Head
from fairseq_entmax.mappings import PerHeadSpec
from fairseq_entmax.mappings.layers import LayerSpec
from fairseq_entmax.models.checkpoint_model import CheckpointModel
from fairseq_entmax.models.features.attention_heads import (
    MAPPING_OPTIONS,
    heads_options,
    mapping_options,
)
from fairseq_entmax.models.values import parse_layers_option

# By attention, the number of heads of each layer, bottom layer first
HeadCounts = dict[str, list[int]]
# By attention, the mapping of each layer, bottom layer first
Mappings = dict[str, list[LayerSpec]]


class RemainingHeads(NamedTuple):
    """The heads that remain after pruning."""

    of_attentions: list[tuple[list[int], list[float]]]  # the remaining heads, and the gates of all
    counts: HeadCounts
    mappings: Mappings  # like per_head_mappings(), for the remaining heads
    copy: dict[str, str]  # options for copying by the remaining heads

    def options(self) -> dict[str, str]:
        return {**heads_options(self.counts), **mapping_options(self.mappings), **self.copy}


def remaining_heads(model: CheckpointModel, heads: Collection[Head]) -> RemainingHeads:
    """The heads that remain once the closed ones and ``heads`` are removed."""
    result = RemainingHeads([], head_counts(model), per_head_mappings(model), {})
    for attention in model.attentions:
        place = (attention.attention, attention.layer)
        gates = model.gates(attention)
        remaining = [
            head for head, gate in enumerate(gates) if gate > 0 and Head(*place, head) not in heads
        ]
        result.of_attentions.append((remaining, gates))
        result.counts[place[0]][place[1]] = len(remaining)
        if place[0] in result.mappings:
            result.mappings[place[0]][place[1]] = attention.mapping.keep_heads(remaining)
        if model.options.copy is not None and place == (CROSS, model.options.copy.layer):
            result.copy.update(_copy_of_remaining(model, remaining))
    return result


def head_counts(model: CheckpointModel) -> HeadCounts:
    """Numbers of heads by attention; ``--no-cross-attention`` leaves the cross-attention out."""
    present = dict.fromkeys(attention.attention for attention in model.attentions)
    return {attention: list(model.options.heads[attention]) for attention in present}


def per_head_mappings(model: CheckpointModel) -> Mappings:
    """The mappings of each attention that has per-head mappings, or had them before pruning."""
    # Not by the specs: the per-head mappings that --copy-mapping made there, it will make again
    of_all = parse_layers_option(getattr(model.args, "attn_mapping", "softmax")).layers
    per_head: Mappings = {}
    for attention in head_counts(model):
        of_attention = getattr(model.args, MAPPING_OPTIONS[attention], None)
        named = of_all + (
            parse_layers_option(of_attention).layers if of_attention is not None else []
        )
        if any(isinstance(spec, PerHeadSpec) for spec in named):
            per_head[attention] = list(model.options.specs[attention])
    return per_head


def _copy_of_remaining(model: CheckpointModel, remaining: list[int]) -> dict[str, str]:
    """Options for copying when only these heads remain in the layer of the copy heads."""
    copy = model.options.copy
    assert copy is not None
    gone = [str(Head(CROSS, copy.layer, head)) for head in copy.copy_heads if head not in remaining]
    if gone:
        raise ValueError(
            f"{model.path} copies with {', '.join(gone)}, without which its copy distribution "
            f"would change or be missing: leave copy heads out of --heads, or --keep more"
        )
    arguments: dict[str, str] = copy.arguments([remaining.index(head) for head in copy.copy_heads])
    return arguments


def check_budget(model: CheckpointModel) -> None:
    """Raise ValueError if training had a budget of heads, and ended before it decided them."""
    cfg, weights = model.state.get("cfg"), model.state["model"]
    criterion = cfg.get("criterion") if cfg is not None else None
    targets = criterion.get("target_heads") if isinstance(criterion, dict) else None
    decisions = [value for key, value in weights.items() if key.endswith(".gate.decision")]
    if not targets or all(bool((value >= 0).all()) for value in decisions):
        return
    updates = weights.get("pruning_state.num_updates", torch.tensor([-1])).item()
    raise ValueError(
        f"{model.path} is from update {updates} of a training with --target-heads {targets}, which had "
        f"not yet decided which heads stay: train on until after --decide-heads-at, or use the "
        f"current gates with --undecided"
    )
