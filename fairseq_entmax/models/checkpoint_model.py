"""The model in a checkpoint, read in the same way by every command and by training."""

from __future__ import annotations

import copy
import os
import re
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch import Tensor, nn

from fairseq_entmax import checkpoints
from fairseq_entmax.attentions import ATTENTIONS, ENCODER_SELF, Place, weights_of_attentions
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.mappings.layers import LayerSpec
from fairseq_entmax.models.feature import ModelOptions

PREFIX = "entmax_"


@dataclass(frozen=True)
class CheckpointAttention:
    """One attention of one layer of a checkpoint's model."""

    attention: str  # encoder-self, decoder-self or cross
    layer: int  # from 0, the bottom
    path: str  # of its module, such as encoder.layers.0.self_attn
    heads: int
    mapping: LayerSpec  # as named in the settings
    weights: dict[str, Tensor]  # by their names in the module

    def part(self, name: str) -> dict[str, Tensor]:
        """The weights of one of its submodules, such as ``gate``."""
        start = f"{name}."
        return {
            key.removeprefix(start): value
            for key, value in self.weights.items()
            if key.startswith(start)
        }


@dataclass(frozen=True)
class CheckpointModel:
    """The model in a checkpoint; a stock model is read as its counterpart here, with softmax."""

    path: str  # the checkpoint's name in errors
    state: dict[str, Any]
    architecture: str  # as named in the checkpoint
    model_class: Any
    args: Namespace  # with the defaults of the architecture
    options: ModelOptions
    attentions: tuple[CheckpointAttention, ...]  # with weights; encoder first, bottom layer first

    @property
    def is_pruned(self) -> bool:
        """Whether a layer has fewer heads than its width has room for."""
        return any(
            count < self.options.places[attention]
            for attention, counts in self.options.heads.items()
            for count in counts
        )

    def mapping(self, attention: CheckpointAttention) -> Mapping | None:
        """The mapping of an attention, with its learned values, in float64; None without heads."""
        if attention.heads == 0:
            return None
        defaults = self.options.mapping_defaults
        # A private generator, so that reading a checkpoint leaves training's random numbers alone
        mapping = attention.mapping.build(attention.heads, torch.Generator(), defaults)
        _load_part(mapping, attention.part("mapping"), f"{attention.path}.mapping.", self.path)
        return mapping.double()

    def gates(self, attention: CheckpointAttention) -> list[float]:
        """The gate of each head in evaluation; 1 without a gate, and for protected heads."""
        gate = self._gate(attention)
        return [1.0] * attention.heads if gate is None else gate.at_evaluation().tolist()

    def gate_scores(self, attention: CheckpointAttention) -> list[float]:
        """The score of each head's gate; heads of larger score are kept. Empty without gates."""
        gate = self._gate(attention)
        return [] if gate is None else gate.score().tolist()

    def _gate(self, attention: CheckpointAttention) -> Any:
        state = attention.part("gate")
        if not state:
            return None
        gates = self.options.features["gates"]
        gate = gates.build(self.options, attention.attention, attention.layer)
        _load_part(gate, state, f"{attention.path}.gate.", self.path)
        return gate


def read_model(path: str) -> CheckpointModel:
    """Read the model in a checkpoint file, without running anything in it."""
    if not os.path.isfile(path):
        is_there = os.path.exists(path)
        raise FileNotFoundError(
            f"{path} is not a file" if is_there else f"there is no checkpoint {path}"
        )
    return model_of_state(checkpoints.load_checkpoint(path), path)


def model_of_state(state: dict[str, Any], path: str) -> CheckpointModel:
    """Like :func:`read_model`, for a checkpoint that is already loaded."""
    settings = checkpoints.model_settings(state, path)
    # No save directory, whatever the settings name: this is not training
    args = Namespace(**{**copy.deepcopy(settings), "save_dir": None, "no_save": True})
    named = settings.get("arch") or settings.get("_name")
    use_counterpart(args)
    model_class = ARCH_MODEL_REGISTRY.get(args.arch)
    if not hasattr(model_class, "attention_options_of"):
        raise ValueError(
            f"{path} has the model {named}: only models of fairseq-entmax and of your --user-dir, and "
            f"fairseq's models with a counterpart here, such as transformer, can be read"
        )
    try:
        ARCH_CONFIG_REGISTRY[args.arch](args)
        options = model_class.attention_options_of(args)
    except ValueError as error:
        raise ValueError(f"{path} has settings that define no valid model: {error}") from error
    state = {**state, "model": _upgraded_weights(state["model"], model_class)}
    attentions = tuple(_attentions(state["model"], options))
    return CheckpointModel(path, state, str(named), model_class, args, options, attentions)


def use_counterpart(settings: Any) -> None:
    """Turn the settings of a stock model into those of its counterpart here, with softmax."""
    name = getattr(settings, "arch", None) or getattr(settings, "_name", None)
    if f"{PREFIX}{name}" in ARCH_MODEL_REGISTRY:
        settings.attn_mapping = "softmax"
        name = f"{PREFIX}{name}"
    settings.arch = name


def _upgraded_weights(weights: dict[str, Tensor], model_class: Any) -> dict[str, Tensor]:
    """Rename and split weights from older releases of fairseq, as fairseq does in loading."""
    found: dict[str, Tensor] = {}
    for key, value in weights.items():
        if model_class.attentions == (ENCODER_SELF,):
            key = re.sub("^decoder", "encoder", key)
        start, together, kind = key.rpartition("in_proj_")
        if together:
            parts = zip("qkv", value.chunk(3), strict=True)
            found |= {f"{start}{part}_proj.{kind}": one for part, one in parts}
        else:
            found[key] = value
    return found


def _attentions(weights: dict[str, Tensor], options: ModelOptions) -> list[CheckpointAttention]:
    parts: dict[tuple[Place, str], dict[str, Tensor]] = {}
    for key, (place, path, name) in weights_of_attentions(weights).items():
        if place.attention in options.heads:
            parts.setdefault((place, path), {})[name] = weights[key]
    attentions = []
    for (place, path), part in parts.items():
        heads = options.heads[place.attention][place.layer]
        spec = options.specs[place.attention][place.layer]
        attentions.append(CheckpointAttention(*place, path, heads, spec, part))
    return sorted(attentions, key=lambda one: (ATTENTIONS.index(one.attention), one.layer))


def _load_part(module: nn.Module, weights: dict[str, Tensor], prefix: str, path: str) -> None:
    """Load a mapping, or gates, from their weights in a checkpoint."""
    if not weights and not list(module.parameters()):
        return
    try:
        module.load_state_dict(dict(weights))
    except (RuntimeError, ValueError) as error:
        message = " ".join(str(error).split())
        raise ValueError(
            f"{path} does not contain the {prefix.rstrip('.')} that its settings name: {message:.600}"
        ) from error
