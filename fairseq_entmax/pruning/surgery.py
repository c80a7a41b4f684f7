"""Take closed heads out of a checkpoint.

The projections of a head are rows of the query, key and value projections and columns of the
output projection. A head whose gate is 0 adds nothing, so its rows and columns can go; a gate
between 0 and 1 is a factor on its columns. The result has no gates and gives the same scores.
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.attentions import PLACES
from fairseq_entmax.files import check_output, whole_file
from fairseq_entmax.head_names import Head
from fairseq_entmax.mappings import HeadsApart, HeadsSpec, Mapping
from fairseq_entmax.mappings.layers import LayerSpec
from fairseq_entmax.models.config import (
    AttentionConfig,
    heads_options,
    mapping_options,
    parse_mapping_option,
)
from fairseq_entmax.models.saved import SavedAttention, SavedModel, model_of_state, read_model
from fairseq_entmax.pruning.settings import model_settings, settings_of, without_history
from fairseq_entmax.pruning.sizes import shared_names, size_of

STATE = "pruning_state."

# Attention to the number of heads of each layer, bottom layer first
HeadCounts = dict[str, list[int]]
# Attention to the mapping of each layer, bottom layer first
Mappings = dict[str, list[LayerSpec]]


@dataclass(frozen=True)
class PruningReport:
    """What pruning did.

    Attributes:
        heads_before: the heads of each layer.
        heads_after: the same, of the result.
        parameters_before: number of parameters, gates included; shared ones count once.
        parameters_after: the same, of the result.
        weight_bytes_before: bytes of the parameters.
        weight_bytes_after: the same, of the result.
        undecided: heads whose gate is strictly between 0 and 1, with the gate. It was folded
            into the output projection.
        mappings_after: the mappings of the layers of each attention whose heads are apart, or
            were before pruning, of the result.
    """

    heads_before: HeadCounts
    heads_after: HeadCounts
    parameters_before: int
    parameters_after: int
    weight_bytes_before: int
    weight_bytes_after: int
    undecided: dict[Head, float]
    mappings_after: Mappings = field(default_factory=dict)


def prune_checkpoint(
    path: str,
    output: str,
    heads: Collection[Head] = (),
    overwrite: bool = False,
    undecided: bool = False,
) -> PruningReport:
    """Write a checkpoint without the closed heads of another, and without its gates.

    The file appears when it is whole; whatever goes wrong before, nothing has changed.

    Args:
        path: a checkpoint of a model of this package, or of its stock counterpart.
        output: the file to write.
        heads: heads to remove beside those that are closed.
        overwrite: replace ``output`` if it exists.
        undecided: as for :func:`prune_state`.

    Raises:
        FileNotFoundError: there is no such checkpoint, or no folder for the output.
        FileExistsError: the output exists.
        OSError: the output cannot be written.
        ValueError, UnsafeCheckpointError: as :func:`prune_state` and
            :func:`fairseq_entmax.checkpoints.load_checkpoint`.
    """
    check_output(output, overwrite)
    pruned, report = _prune(read_model(path), heads, undecided)
    try:
        with whole_file(Path(output)) as file:
            torch.save(pruned, file)
    except RuntimeError as error:
        # How torch reports a full disk
        raise OSError(f"cannot write {output}, nothing was changed: {error}") from error
    return report


def prune_state(
    state: dict[str, Any], name: str, heads: Collection[Head] = (), undecided: bool = False
) -> tuple[dict[str, Any], PruningReport]:
    """Take the closed heads, and ``heads``, out of a loaded checkpoint, which stays as it is.

    The result has no state of an optimiser and no moving averages, whose numbers belong to the
    larger model, and none of the numbers that training logged.

    Args:
        state: what :func:`fairseq_entmax.checkpoints.load_checkpoint` returned.
        name: what to call it in errors.
        heads: heads to remove beside those that are closed.
        undecided: whether to take a model whose training had a budget of heads and ended before
            they were decided.

    Raises:
        ValueError: the checkpoint is of another model, has neither gates nor ``heads`` to
            remove, does not have one of ``heads``, or has not decided its heads.
    """
    return _prune(model_of_state(state, name), heads, undecided)


def _prune(
    model: SavedModel, heads: Collection[Head], undecided: bool
) -> tuple[dict[str, Any], PruningReport]:
    state = model.state
    if not heads and not any(".gate." in key for key in state["model"]):
        raise ValueError(
            f"{model.path} has no head gates, so no head of it is closed: name the heads to remove, "
            f"such as --heads 'encoder-self:0.3,0.5;cross:2.1'"
        )
    _check_heads(heads, model)
    if not undecided:
        _check_budget(model)
    weights = {key: value for key, value in state["model"].items() if not key.startswith(STATE)}
    before, after = _counts(model), _counts(model)
    mappings = _heads_apart(model)
    between: dict[Head, float] = {}
    for attention in model.attentions:
        place = (attention.attention, attention.layer)
        gates = model.gates(attention)
        kept = [
            head for head, gate in enumerate(gates) if gate > 0 and Head(*place, head) not in heads
        ]
        if place[0] in mappings and attention.heads:
            mappings[place[0]][place[1]] = attention.mapping.keep_heads(kept)
        between |= {Head(*place, head): gates[head] for head in kept if gates[head] < 1}
        after[attention.attention][attention.layer] = len(kept)
        cut = _cut(model, attention, kept, gates)
        gone = [f"{attention.path}.{name}" for name in attention.weights if name not in cut]
        weights |= {f"{attention.path}.{name}": value for name, value in cut.items()}
        if not kept and attention.heads and _norms_before(model, attention):
            gone += [key for key in weights if key.startswith(f"{attention.path}_layer_norm.")]
        for key in gone:
            del weights[key]
    options = {**heads_options(after), **mapping_options(mappings)}
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
    parameters_before, bytes_before = size_of(state["model"], shared)
    parameters_after, bytes_after = size_of(weights, shared)
    report = PruningReport(
        before,
        after,
        parameters_before,
        parameters_after,
        bytes_before,
        bytes_after,
        between,
        mappings,
    )
    return pruned, report


def checkpoint_heads(path: str) -> HeadCounts:
    """The heads of each layer of a checkpoint; of one with gates, those that are not closed.

    Raises:
        FileNotFoundError, ValueError, UnsafeCheckpointError: as :func:`prune_checkpoint`.
    """
    return checkpoint_layers(path)[0]


def checkpoint_layers(path: str) -> tuple[HeadCounts, Mappings]:
    """The same, and the mappings of the layers of each attention whose heads are, or were, apart.

    Raises:
        FileNotFoundError, ValueError, UnsafeCheckpointError: as :func:`prune_checkpoint`.
    """
    model = read_model(path)
    counts, mappings = _counts(model), _heads_apart(model)
    for attention in model.attentions:
        place = (attention.attention, attention.layer)
        is_open = [head for head, gate in enumerate(model.gates(attention)) if gate > 0]
        counts[place[0]][place[1]] = len(is_open)
        if place[0] in mappings and attention.heads:
            mappings[place[0]][place[1]] = attention.mapping.keep_heads(is_open)
    return counts, mappings


def _counts(model: SavedModel) -> HeadCounts:
    """The heads of the attentions that the model has; ``--no-cross-attention`` leaves one out."""
    present = dict.fromkeys(attention.attention for attention in model.attentions)
    return {attention: list(model.options.heads[attention]) for attention in present}


def _heads_apart(model: SavedModel) -> Mappings:
    """The mappings of each attention whose heads are apart, or were before it was pruned."""
    of_all = parse_mapping_option(AttentionConfig.of(model.args).attn_mapping)
    return {
        attention: list(model.options.specs[attention])
        for attention in _counts(model)
        if any(isinstance(spec, HeadsSpec) for spec in [*of_all, *model.options.specs[attention]])
    }


def _check_heads(heads: Collection[Head], model: SavedModel) -> None:
    present, name = _counts(model), model.path
    for head in sorted(heads):
        layers = present.get(head.attention, [])
        if head.layer >= len(layers):
            raise ValueError(
                f"{name} has no head {head}: its {head.attention} attention has {len(layers)} "
                f"layers, counted from 0"
            )
        if head.head >= layers[head.layer]:
            raise ValueError(
                f"{name} has no head {head}: layer {head.layer} of its {head.attention} attention "
                f"has {layers[head.layer]} heads, counted from 0"
            )


def _check_budget(model: SavedModel) -> None:
    """Refuse a model that was to have a number of heads, and was not trained until it has."""
    cfg, weights = model.state.get("cfg"), model.state["model"]
    criterion = cfg.get("criterion") if cfg is not None else None
    targets = criterion.get("target_heads") if isinstance(criterion, dict) else None
    decisions = [value for key, value in weights.items() if key.endswith(".gate.decision")]
    if not targets or all(bool((value >= 0).all()) for value in decisions):
        return
    updates = weights.get("pruning_state.num_updates", torch.tensor([-1])).item()
    raise ValueError(
        f"{model.path} is from update {updates} of a training with --target-heads {targets}, which had "
        f"not yet decided which heads stay: train on, until after --decide-heads-at, or take the "
        f"gates as they are with --undecided"
    )


def _norms_before(model: SavedModel, attention: SavedAttention) -> bool:
    side = PLACES[attention.attention][0]
    return bool(getattr(model.args, f"{side}_normalize_before", False))


def _cut(
    model: SavedModel, attention: SavedAttention, kept: list[int], gates: list[float]
) -> dict[str, Tensor]:
    """The weights of an attention with these of its heads, each times its gate."""
    weights = {
        name: value for name, value in attention.weights.items() if not name.startswith("gate.")
    }
    if attention.heads == 0:
        return weights
    if not kept:
        return {name: weights[name] for name in ("out_proj.bias",) if name in weights}
    if "q_proj.weight" not in weights:
        raise ValueError(
            f"the checkpoint has no {attention.path}.q_proj.weight: it is of an old fairseq or "
            f"quantised, and cannot be pruned"
        )
    head_dim = weights["q_proj.weight"].size(0) // attention.heads
    rows = torch.cat([torch.arange(head * head_dim, (head + 1) * head_dim) for head in kept])
    for name in (f"{part}_proj.{kind}" for part in "qkv" for kind in ("weight", "bias")):
        if name in weights:
            weights[name] = weights[name][rows].clone()
    output = weights["out_proj.weight"]
    if any(gates[head] < 1 for head in kept):
        # In float32 also in a half precision checkpoint: rounded, the scores would be others
        factors = torch.tensor([gates[head] for head in kept]).repeat_interleave(head_dim)
        wide = output if output.dtype == torch.float64 else output.float()
        weights["out_proj.weight"] = wide[:, rows] * factors
    else:
        weights["out_proj.weight"] = output[:, rows].clone()
    others = {name: value for name, value in weights.items() if not name.startswith("mapping.")}
    return {**others, **_cut_mapping(model, attention, kept)}


def _cut_mapping(
    model: SavedModel, attention: SavedAttention, kept: list[int]
) -> dict[str, Tensor]:
    """What is saved of the mapping of an attention with these of its heads."""
    saved = attention.part("mapping")
    mapping = model.mapping(attention)
    assert mapping is not None
    mapping.keep_heads(kept)
    left: Mapping = mapping.simplest() if isinstance(mapping, HeadsApart) else mapping
    defaults = model.options.mapping_defaults
    wanted = attention.mapping.keep_heads(kept).build(len(kept), defaults=defaults).state_dict()
    values = left.state_dict()
    if any(value.shape != values[name].shape for name, value in wanted.items()):
        raise ValueError(
            f"the mapping {attention.mapping} cannot be pruned to {len(kept)} heads: keep_heads of "
            f"{type(mapping).__name__} has to leave of its parameters what one of so many heads has"
        )
    if not saved:
        return {}
    # Of heads apart the names have others in front of them, with the numbers that are left
    dtypes = {name.rpartition(".")[2]: value.dtype for name, value in saved.items()}
    return {
        f"mapping.{name}": value.to(dtypes[name.rpartition(".")[2]])
        for name, value in values.items()
    }
