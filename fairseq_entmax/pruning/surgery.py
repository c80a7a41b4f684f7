"""Removing closed heads from a checkpoint.

The projections of a head are rows of the query, key and value projections and columns of the
output projection. A head whose gate is 0 adds nothing, so its rows and columns can be removed. A
gate between 0 and 1 is multiplied into its columns. The result has no gates and the same scores.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.attentions import SIDES
from fairseq_entmax.files import check_target, whole_file
from fairseq_entmax.head_names import Head, check_heads
from fairseq_entmax.mappings import Mapping, PerHeadMapping
from fairseq_entmax.mappings.functional import in_full_precision
from fairseq_entmax.models.checkpoint_model import (
    CheckpointAttention,
    CheckpointModel,
    model_of_state,
    read_model,
)
from fairseq_entmax.pruning.evidence import Choice
from fairseq_entmax.pruning.remaining_heads import (
    HeadCounts,
    RemainingHeads,
    check_budget,
    head_counts,
    remaining_heads,
)
from fairseq_entmax.pruning.settings import model_settings, settings_of, without_history
from fairseq_entmax.pruning.sizes import shared_names, size_of

# What an attention has besides its mapping and gates
PROJECTIONS = ("q_proj.", "k_proj.", "v_proj.", "out_proj.")


@dataclass(frozen=True)
class PruningReport:
    """A model before and after pruning."""

    heads_before: HeadCounts
    heads_after: HeadCounts
    parameters_before: int  # gates included; shared ones count once
    parameters_after: int
    weight_bytes_before: int
    weight_bytes_after: int
    undecided: dict[Head, float]  # gates between 0 and 1, folded into the output projection
    options_after: dict[str, str]  # of the smaller model: its heads, per-head mappings and copying


def prune_checkpoint(
    path: str,
    output: str,
    heads: Collection[Head] | Choice = (),
    overwrite: bool = False,
    undecided: bool = False,
) -> PruningReport:
    """Write a copy of a checkpoint without closed heads and gates; after an error, write nothing.

    ``path`` is of a model of this package, or of its stock counterpart. ``heads`` are removed in
    addition to closed ones, or choose how many stay. The rest is as in :func:`prune_state`.

    Raises:
        OSError, ValueError, UnsafeCheckpointError: a file is at fault; or as :func:`prune_state`.
    """
    target = check_target(output, "--output", overwrite)
    model = read_model(path)
    removed = heads.removed(model) if isinstance(heads, Choice) else heads
    pruned, report = _prune(model, removed, undecided)
    try:
        with whole_file(target) as file:
            torch.save(pruned, file)
    except RuntimeError as error:
        # How torch reports a full disk
        raise OSError(f"cannot write {output}, nothing was changed: {error}") from error
    return report


def prune_state(
    state: dict[str, Any], name: str, heads: Collection[Head] = (), undecided: bool = False
) -> tuple[dict[str, Any], PruningReport]:
    """Copy a loaded checkpoint without its closed heads and ``heads``; it does not change.

    The copy has no optimiser state and no moving averages, which belong to the larger model, and
    no metrics of training.

    Args:
        state: what :func:`fairseq_entmax.checkpoints.load_checkpoint` returned.
        name: the checkpoint's name in errors.
        heads: heads to remove in addition to closed ones.
        undecided: whether to accept a model whose training had a budget of heads and ended before
            they were decided.

    Raises:
        ValueError: the checkpoint is of another kind of model, has neither gates nor ``heads``
            to remove, lacks one of ``heads``, has not decided its heads, or would lose a head
            that it copies by.
    """
    return _prune(model_of_state(state, name), heads, undecided)


def _prune(
    model: CheckpointModel, heads: Collection[Head], undecided: bool
) -> tuple[dict[str, Any], PruningReport]:
    state = model.state
    if not heads and not any(".gate." in key for key in state["model"]):
        raise ValueError(
            f"{model.path} has no head gates, so none of its heads is closed: --keep fewer heads, or name "
            f"those to remove, such as --heads '{model.attentions[0].attention}:0.3,0.5'"
        )
    check_heads(heads, head_counts(model), model.path)
    if not undecided:
        check_budget(model)
    weights = {
        key: value for key, value in state["model"].items() if not key.startswith("pruning_state.")
    }
    result = remaining_heads(model, heads)
    between: dict[Head, float] = {}
    for attention, (remaining, gates) in zip(model.attentions, result.of_attentions, strict=True):
        place = (attention.attention, attention.layer)
        between |= {Head(*place, head): gates[head] for head in remaining if gates[head] < 1}
        cut = _cut(model, attention, remaining, gates)
        gone = [f"{attention.path}.{name}" for name in attention.weights if name not in cut]
        weights |= {f"{attention.path}.{name}": value for name, value in cut.items()}
        normalizes_before = f"{SIDES[attention.attention]}_normalize_before"
        if not remaining and getattr(model.args, normalizes_before, False):
            gone += [key for key in weights if key.startswith(f"{attention.path}_layer_norm.")]
        for key in gone:
            del weights[key]
    options = result.options()
    pruned = {
        **state,
        "model": weights,
        "cfg": settings_of(state.get("cfg"), model, options),
        "args": model_settings(copy.deepcopy(state.get("args")), model, options),
        "criterion": None,
        "last_optimizer_state": None,
        "extra_state": without_history(state.get("extra_state")),
    }
    shared = shared_names(model)
    before, after = size_of(state["model"], shared), size_of(weights, shared)
    report = PruningReport(
        heads_before=head_counts(model),
        heads_after=result.counts,
        parameters_before=before[0],
        parameters_after=after[0],
        weight_bytes_before=before[1],
        weight_bytes_after=after[1],
        undecided=between,
        options_after=options,
    )
    return pruned, report


def checkpoint_layers(path: str, undecided: bool = False) -> RemainingHeads:
    """The heads in each layer of a checkpoint, without closed ones.

    ``undecided`` and errors are as for :func:`prune_state`.
    """
    model = read_model(path)
    if not undecided:
        check_budget(model)
    return remaining_heads(model, ())


def _cut(
    model: CheckpointModel, attention: CheckpointAttention, remaining: list[int], gates: list[float]
) -> dict[str, Tensor]:
    """The weights of an attention, reduced to the remaining heads, each times its gate."""
    weights = {
        name: value for name, value in attention.weights.items() if not name.startswith("gate.")
    }
    if attention.heads == 0:
        return weights
    if not remaining:
        return {name: weights[name] for name in ("out_proj.bias",) if name in weights}
    if "q_proj.weight" not in weights:
        raise ValueError(
            f"the checkpoint has no {attention.path}.q_proj.weight: it is quantised or "
            f"damaged, and cannot be pruned"
        )
    unknown = [name for name in weights if not name.startswith((*PROJECTIONS, "mapping."))]
    if unknown and len(remaining) < attention.heads:
        raise ValueError(
            f"{model.path} has {attention.path}.{unknown[0]}, which prune cannot assign to heads: "
            f"keep all {attention.heads} heads of this layer"
        )
    head_dim = weights["q_proj.weight"].size(0) // attention.heads
    rows = torch.cat([torch.arange(head * head_dim, (head + 1) * head_dim) for head in remaining])
    for name in (f"{part}_proj.{kind}" for part in "qkv" for kind in ("weight", "bias")):
        if name in weights:
            weights[name] = weights[name][rows].clone()
    output = weights["out_proj.weight"]
    if any(gates[head] < 1 for head in remaining):
        # In float32 even in a half-precision checkpoint: rounding would change the scores
        factors = torch.tensor([gates[head] for head in remaining]).repeat_interleave(head_dim)
        weights["out_proj.weight"] = in_full_precision(output)[:, rows] * factors
    else:
        weights["out_proj.weight"] = output[:, rows].clone()
    others = {name: value for name, value in weights.items() if not name.startswith("mapping.")}
    return {**others, **_cut_mapping(model, attention, remaining)}


def _cut_mapping(
    model: CheckpointModel, attention: CheckpointAttention, remaining: list[int]
) -> dict[str, Tensor]:
    """The saved values of an attention's mapping, reduced to the remaining heads."""
    weights = attention.part("mapping")
    mapping = model.mapping(attention)
    assert mapping is not None
    mapping.keep_heads(remaining)
    smaller: Mapping = mapping.simplest() if isinstance(mapping, PerHeadMapping) else mapping
    spec, defaults = attention.mapping.keep_heads(remaining), model.options.mapping_defaults
    wanted = spec.build(len(remaining), defaults=defaults).state_dict()
    values = smaller.state_dict()
    if any(value.shape != values[name].shape for name, value in wanted.items()):
        raise ValueError(
            f"the mapping {attention.mapping} cannot be pruned to {len(remaining)} heads: keep_heads "
            f"of {type(mapping).__name__} must leave the parameter shapes of a mapping with that many heads"
        )
    if not weights:
        return {}
    # By the last part of their names: in per-head mappings, the parts before it are renumbered
    dtypes = {name.rpartition(".")[2]: value.dtype for name, value in weights.items()}
    return {
        f"mapping.{name}": value.to(dtypes[name.rpartition(".")[2]])
        for name, value in values.items()
    }
