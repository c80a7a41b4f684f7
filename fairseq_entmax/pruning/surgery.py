"""Take closed heads out of a checkpoint.

The projections of a head are rows of the query, key and value projections and columns of the
output projection. A head whose gate is 0 adds nothing, so its rows and columns can go; a gate
between 0 and 1 is a factor on its columns. The result has no gates and gives the same scores.
"""

from __future__ import annotations

import copy
import os
from argparse import Namespace
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.models.transformer import TransformerConfig
from torch import Tensor

from fairseq_entmax import checkpoints, compat
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF
from fairseq_entmax.criterions.head_l0 import NAME as GATED_CRITERION
from fairseq_entmax.files import check_output, whole_file
from fairseq_entmax.head_names import Head
from fairseq_entmax.models.options import (
    HEADS_OPTIONS,
    SHARE_ATTENTION,
    SHARE_MODEL,
    SHARE_NONE,
    AttentionOptions,
    option_name,
    read_options,
    set_defaults,
)
from fairseq_entmax.modules import HardConcreteGate

MODEL = "entmax_transformer"
PLAIN_CRITERION = "label_smoothed_cross_entropy"
CRITERION_OPTIONS = ("label_smoothing", "report_accuracy", "ignore_prefix_size", "sentence_avg")

_MODULES = {
    ENCODER_SELF: "encoder.layers.{}.self_attn",
    DECODER_SELF: "decoder.layers.{}.self_attn",
    CROSS: "decoder.layers.{}.encoder_attn",
}

# Attention to the number of heads of each layer, bottom layer first
HeadCounts = dict[str, list[int]]


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
    """

    heads_before: HeadCounts
    heads_after: HeadCounts
    parameters_before: int
    parameters_after: int
    weight_bytes_before: int
    weight_bytes_after: int
    undecided: dict[Head, float]


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
        path: a checkpoint of ``entmax_transformer`` or of a stock ``transformer``.
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
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no checkpoint {path}")
    check_output(output, overwrite)
    pruned, report = prune_state(checkpoints.load_checkpoint(path), path, heads, undecided)
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
    options, effective = _read(state, name)
    weights: dict[str, Tensor] = dict(state["model"])
    present = _present_heads(weights, options)
    if not heads and not any(".gate." in key for key in weights):
        raise ValueError(
            f"{name} has no head gates, so no head of it is closed: name the heads to remove, "
            f"such as --heads 'encoder-self:0.3,0.5;cross:2.1'"
        )
    _check_heads(heads, present, name)
    if not undecided:
        _check_budget(state, weights, name)
    after: HeadCounts = {attention: list(counts) for attention, counts in present.items()}
    between: dict[Head, float] = {}
    for attention, counts in present.items():
        for layer, count in enumerate(counts):
            gates = _gates(weights, attention, layer, count, options)
            kept = [
                head
                for head in range(count)
                if gates[head] > 0 and Head(attention, layer, head) not in heads
            ]
            between |= {
                Head(attention, layer, head): gates[head] for head in kept if gates[head] < 1
            }
            _cut(weights, attention, layer, count, kept, gates, options, effective)
            after[attention][layer] = len(kept)
    weights = {key: value for key, value in weights.items() if not key.startswith("pruning_state.")}
    pruned = {
        **state,
        "model": weights,
        "cfg": _settings(state.get("cfg"), after),
        "args": _model_settings(copy.deepcopy(state.get("args")), after),
        "criterion": None,
        "last_optimizer_state": None,
        "extra_state": _without_history(state.get("extra_state")),
    }
    shared = [".embed_tokens.weight", ".output_projection.weight"]
    if options.share_alpha in (SHARE_ATTENTION, SHARE_MODEL):
        shared.append(".mapping.alpha_logit")
    parameters_before, bytes_before = _size(state["model"], tuple(shared))
    parameters_after, bytes_after = _size(weights, tuple(shared))
    report = PruningReport(
        present, after, parameters_before, parameters_after, bytes_before, bytes_after, between
    )
    return pruned, report


def checkpoint_heads(path: str) -> HeadCounts:
    """The heads of each layer of a checkpoint; of one with gates, those that are not closed.

    Raises:
        FileNotFoundError, ValueError, UnsafeCheckpointError: as :func:`prune_checkpoint`.
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f"there is no checkpoint {path}")
    state = checkpoints.load_checkpoint(path)
    options, _ = _read(state, path)
    weights = state["model"]
    return {
        attention: [
            sum(gate > 0 for gate in _gates(weights, attention, layer, count, options))
            for layer, count in enumerate(counts)
        ]
        for attention, counts in _present_heads(weights, options).items()
    }


def as_options(counts: HeadCounts) -> str:
    """Options of ``fairseq-train`` that build a model with these heads."""
    return " ".join(
        f"{option_name(HEADS_OPTIONS[attention])} {','.join(map(str, layers))}"
        for attention, layers in counts.items()
    )


def as_table(report: PruningReport, bytes_before: int, bytes_after: int) -> str:
    """The report as lines of text; the bytes are those of the two files."""
    rows = [("", "before", "after", "left in each layer")]
    for attention, before in report.heads_before.items():
        after = report.heads_after[attention]
        layers = ",".join(map(str, after))
        rows.append((f"heads {attention}", str(sum(before)), str(sum(after)), layers))
    rows += [
        ("parameters", f"{report.parameters_before:,}", f"{report.parameters_after:,}", ""),
        (
            "bytes of weights",
            f"{report.weight_bytes_before:,}",
            f"{report.weight_bytes_after:,}",
            "",
        ),
        ("bytes of the file", f"{bytes_before:,}", f"{bytes_after:,}", ""),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    lines = [
        f"{name:<{widths[0]}}  {before:>{widths[1]}}  {after:>{widths[2]}}  {layers}".rstrip()
        for name, before, after, layers in rows
    ]
    if report.undecided:
        heads = ", ".join(f"{head} {gate:.3f}" for head, gate in sorted(report.undecided.items()))
        lines.append(
            f"{len(report.undecided)} heads had a gate strictly between 0 and 1, which is now part "
            f"of their output projection: {heads}"
        )
    return "\n".join(lines)


def _read(state: dict[str, Any], name: str) -> tuple[AttentionOptions, TransformerConfig]:
    """The options of the checkpoint's model, with the defaults of its architecture."""
    settings = checkpoints.model_settings(state, name)
    arch = str(settings.get("arch") or settings.get("_name"))
    stock = compat.stock_architectures()
    if arch not in stock and arch.removeprefix("entmax_") not in stock:
        raise ValueError(
            f"{name} is of the model {arch}: only {MODEL} and fairseq's transformer can be pruned"
        )
    args = Namespace(**{**settings, "save_dir": None})
    if arch in stock:
        args.attn_mapping = "softmax"
    set_defaults(args)
    ARCH_CONFIG_REGISTRY[arch](args)
    config = TransformerConfig.from_namespace(args)
    return read_options(args, config), config


def _present_heads(weights: dict[str, Tensor], options: AttentionOptions) -> HeadCounts:
    """The heads of the attentions that the model has; ``--no-cross-attention`` leaves one out."""
    return {
        attention: options.heads[attention]
        for attention in ATTENTIONS
        if any(key.startswith(_MODULES[attention].format(0) + ".") for key in weights)
    }


def _check_heads(heads: Collection[Head], present: HeadCounts, name: str) -> None:
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


def _check_budget(state: dict[str, Any], weights: dict[str, Tensor], name: str) -> None:
    """Refuse a model that was to have a number of heads, and was not trained until it has."""
    cfg = state.get("cfg")
    criterion = cfg.get("criterion") if cfg is not None else None
    targets = criterion.get("target_heads") if isinstance(criterion, dict) else None
    decisions = [value for key, value in weights.items() if key.endswith(".gate.decision")]
    if not targets or all(bool((value >= 0).all()) for value in decisions):
        return
    updates = weights.get("pruning_state.num_updates", torch.tensor([-1])).item()
    raise ValueError(
        f"{name} is from update {updates} of a training with --target-heads {targets}, which had "
        f"not yet decided which heads stay: train on, until after --decide-heads-at, or take the "
        f"gates as they are with --undecided"
    )


def _gates(
    weights: dict[str, Tensor], attention: str, layer: int, count: int, options: AttentionOptions
) -> list[float]:
    """The gate of each head in evaluation; 1 where there are no gates."""
    prefix = _MODULES[attention].format(layer) + ".gate."
    state = {key.removeprefix(prefix): weights[key] for key in weights if key.startswith(prefix)}
    if not state:
        return [1.0] * count
    gate = HardConcreteGate(count, **options.gate)
    gate.load_state_dict(state)
    values: list[float] = gate.at_evaluation().tolist()
    return values


def _cut(
    weights: dict[str, Tensor],
    attention: str,
    layer: int,
    count: int,
    kept: list[int],
    gates: list[float],
    options: AttentionOptions,
    config: TransformerConfig,
) -> None:
    """Take heads out of one attention of one layer, in place."""
    prefix = _MODULES[attention].format(layer) + "."
    for key in [key for key in weights if key.startswith(prefix + "gate.")]:
        del weights[key]
    if count == 0:
        return
    if not kept:
        side = config.encoder if attention == ENCODER_SELF else config.decoder
        gone = [prefix]
        if side.normalize_before:
            gone.append(prefix.removesuffix(".") + "_layer_norm.")
        for key in [key for key in weights if key.startswith(tuple(gone))]:
            if key != prefix + "out_proj.bias":
                del weights[key]
        return
    if prefix + "q_proj.weight" not in weights:
        raise ValueError(
            f"the checkpoint has no {prefix}q_proj.weight: it is of an old fairseq or quantised, "
            f"and cannot be pruned"
        )
    head_dim = weights[prefix + "q_proj.weight"].size(0) // count
    rows = torch.cat([torch.arange(head * head_dim, (head + 1) * head_dim) for head in kept])
    for projection in ("q_proj", "k_proj", "v_proj"):
        for part in ("weight", "bias"):
            key = f"{prefix}{projection}.{part}"
            if key in weights:
                weights[key] = weights[key][rows].clone()
    key = prefix + "out_proj.weight"
    if any(gates[head] < 1 for head in kept):
        # In float32 also in a half precision checkpoint: rounded, the scores would be others
        factors = torch.tensor([gates[head] for head in kept]).repeat_interleave(head_dim)
        wide = weights[key] if weights[key].dtype == torch.float64 else weights[key].float()
        weights[key] = wide[:, rows] * factors
    else:
        weights[key] = weights[key][:, rows].clone()
    key = prefix + "mapping.alpha_logit"
    if options.share_alpha == SHARE_NONE and key in weights:
        weights[key] = weights[key][kept].clone()


def _settings(cfg: dict[str, Any] | None, counts: HeadCounts) -> dict[str, Any] | None:
    """The checkpoint's settings, for a model of these heads."""
    if cfg is None:
        return None
    cfg = copy.deepcopy(cfg)
    cfg["model"] = _model_settings(cfg["model"], counts)
    criterion = cfg.get("criterion")
    if isinstance(criterion, dict) and criterion.get("_name") == GATED_CRITERION:
        kept = {key: criterion[key] for key in CRITERION_OPTIONS if key in criterion}
        cfg["criterion"] = {"_name": PLAIN_CRITERION, **kept}
    return cfg


def _model_settings(settings: Any, counts: HeadCounts) -> Any:
    """The settings of a model with these heads and no gates."""
    if settings is None:
        return None
    values = vars(settings) if isinstance(settings, Namespace) else settings
    stock = compat.stock_architectures()
    for key in ("arch", "_name"):
        if values.get(key) in stock:
            values[key] = f"entmax_{values[key]}"
            values["attn_mapping"] = "softmax"
    for attention, layers in counts.items():
        values[HEADS_OPTIONS[attention]] = ",".join(map(str, layers))
    values["head_gates"] = None
    values["freeze_decoder"] = False
    if values.get("criterion") == GATED_CRITERION:
        values["criterion"] = PLAIN_CRITERION
    return settings


def _without_history(extra_state: Any) -> Any:
    """fairseq's extra state without moving averages, and without what training logged."""
    if not isinstance(extra_state, dict):
        return extra_state
    gone = ("ema", "metrics", "best")
    return {key: value for key, value in extra_state.items() if not key.startswith(gone)}


def _parameters(weights: dict[str, Tensor], shared: tuple[str, ...]) -> Iterator[Tensor]:
    """Each learned tensor once; what fairseq saves beside them is left out.

    Tensors that layers share may be copies in the file, as fairseq moves each to the CPU by
    itself; ``shared`` says how the names of such tensors end.
    """
    seen = set()
    copies: list[Tensor] = []
    for key, value in weights.items():
        is_buffer = key.startswith("pruning_state.") or key.endswith(
            (".gate.decision", ".version", "._float_tensor")
        )
        place = (value.data_ptr(), value.shape)
        if is_buffer or not value.numel() or place in seen:
            continue
        seen.add(place)
        if key.endswith(shared):
            if any(torch.equal(value, known) for known in copies):
                continue
            copies.append(value)
        yield value


def _size(weights: dict[str, Tensor], shared: tuple[str, ...]) -> tuple[int, int]:
    """The number of parameters and their bytes."""
    parameters = list(_parameters(weights, shared))
    count = sum(value.numel() for value in parameters)
    return count, sum(value.numel() * value.element_size() for value in parameters)
