"""Which model is in a checkpoint: one answer for every command, and for training."""

from __future__ import annotations

import copy
import os
from argparse import Namespace
from dataclasses import dataclass
from typing import Any

from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch import Tensor

from fairseq_entmax import checkpoints
from fairseq_entmax.attentions import ATTENTIONS, CROSS, Place, place_of
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.mappings.layers import HeadsSpec, LayerSpec
from fairseq_entmax.models.config import (
    HEADS_OPTIONS,
    MAPPING_OPTIONS,
    heads_options,
    mapping_text,
    parse_mapping_option,
)
from fairseq_entmax.models.copy_config import CopyConfig, copy_options
from fairseq_entmax.models.options import AttentionOptions, check_heads_apart

PREFIX = "entmax_"


@dataclass(frozen=True)
class SavedAttention:
    """One attention of one layer of a saved model.

    Attributes:
        attention: ``encoder-self``, ``decoder-self`` or ``cross``.
        layer: from 0, the bottom.
        path: of its module, such as ``encoder.layers.0.self_attn``.
        heads: how many it has.
        mapping: what the settings name.
        weights: its parameters, by their names in the module.
    """

    attention: str
    layer: int
    path: str
    heads: int
    mapping: LayerSpec
    weights: dict[str, Tensor]

    def part(self, name: str) -> dict[str, Tensor]:
        """The parameters of one of its modules, such as ``gate``."""
        start = f"{name}."
        return {
            key.removeprefix(start): value
            for key, value in self.weights.items()
            if key.startswith(start)
        }


@dataclass(frozen=True)
class SavedModel:
    """A model as a checkpoint has it.

    Attributes:
        path: what to call it in errors.
        state: the checkpoint.
        architecture: the one that it names.
        model_class: what builds it, of the kind of :class:`AdaptiveModel`.
        args: its settings, with the defaults of the architecture, for ``model_class``; those of
            a stock model are turned into those of its counterpart in this package, with softmax.
        options: what the settings of heads amount to.
        attentions: those that have weights, encoder first, bottom layer first.
    """

    path: str
    state: dict[str, Any]
    architecture: str
    model_class: Any
    args: Namespace
    options: AttentionOptions
    attentions: tuple[SavedAttention, ...]

    @property
    def is_pruned(self) -> bool:
        """Whether a layer has fewer heads than it has place for."""
        return any(
            count < self.options.places[attention]
            for attention, counts in self.options.heads.items()
            for count in counts
        )

    def mapping(self, attention: SavedAttention) -> Mapping | None:
        """The mapping of an attention with what it has learned, in float64; None without heads."""
        if attention.heads == 0:
            return None
        defaults = self.options.mapping_defaults
        mapping = attention.mapping.build(attention.heads, defaults=defaults)
        learned = attention.part("mapping")
        if learned:
            mapping.load_state_dict(learned)
        return mapping.double()

    def gates(self, attention: SavedAttention) -> list[float]:
        """The gate of each head in evaluation; 1 where there is none, and of protected heads."""
        state = attention.part("gate")
        if not state:
            return [1.0] * attention.heads
        gate = self.options.build_gate(attention.attention, attention.layer)
        gate.load_state_dict(state)
        return gate.at_evaluation().tolist()


def read_model(path: str) -> SavedModel:
    """Read which model is in a checkpoint; nothing in it is run.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no checkpoint, or one of a model that has no counterpart here.
        UnsafeCheckpointError: it holds something that could run code.
    """
    if not os.path.isfile(path):
        kind = "is no file" if os.path.exists(path) else "does not exist"
        raise FileNotFoundError(f"there is no checkpoint {path}, it {kind}")
    return model_of_state(checkpoints.load_checkpoint(path), path)


def model_of_state(state: dict[str, Any], path: str) -> SavedModel:
    """The same for a checkpoint that is loaded already."""
    settings = checkpoints.model_settings(state, path)
    architecture = str(settings.get("arch") or settings.get("_name"))
    # Not in training, whatever the settings were saved in
    args = Namespace(**{**copy.deepcopy(settings), "save_dir": None, "no_save": True})
    as_ours(args)
    model_class = ARCH_MODEL_REGISTRY.get(args.arch)
    if not hasattr(model_class, "attention_options_of"):
        raise ValueError(
            f"{path} is of the model {architecture}: only those of fairseq-entmax, and fairseq's "
            f"own that they have as a counterpart, such as transformer, can be read"
        )
    ARCH_CONFIG_REGISTRY[args.arch](args)
    options = model_class.attention_options_of(args)
    check_heads_apart(options, args)
    attentions = _attentions(state["model"], options, path)
    return SavedModel(path, state, architecture, model_class, args, options, attentions)


def as_ours(settings: Any) -> None:
    """Turn the settings of a stock model into those of its counterpart here, with softmax.

    Args:
        settings: an object with the attribute ``arch``, ``_name`` or both.
    """
    name = getattr(settings, "arch", None) or getattr(settings, "_name", None)
    if f"{PREFIX}{name}" in ARCH_MODEL_REGISTRY:
        settings.attn_mapping = "softmax"
        name = f"{PREFIX}{name}"
    settings.arch = name


def _attentions(
    weights: dict[str, Tensor], options: AttentionOptions, path: str
) -> tuple[SavedAttention, ...]:
    parts: dict[tuple[Place, str], dict[str, Tensor]] = {}
    for key, value in weights.items():
        located = place_of(key)
        if located is not None:
            place, module, name = located
            parts.setdefault((place, module), {})[name] = value
    attentions = []
    for (place, module), own in parts.items():
        heads = options.heads.get(place.attention, [])
        if place.layer >= len(heads):
            raise ValueError(
                f"{path} does not hold the model that it names: it has weights of layer "
                f"{place.layer} of {place.attention} attention, which has {len(heads)} layers"
            )
        spec = options.specs[place.attention][place.layer]
        attentions.append(SavedAttention(*place, module, heads[place.layer], spec, own))
    if not attentions:
        raise ValueError(f"{path} holds no attention of a Transformer")
    attentions.sort(key=lambda one: (ATTENTIONS.index(one.attention), one.layer))
    return tuple(attentions)


def heads_of_start(args: Any) -> dict[str, str]:
    """The heads of the pruned checkpoint from which training starts, as options.

    Where its heads are apart, so are the mappings of those that are left, if ``--attn-mapping`` is
    that of the model which was pruned. Where both models copy, so are the heads to copy by, and
    their mapping if no option names one: heads that are left have other numbers than before. Unless
    ``--copy-layer`` names another layer than that of the checkpoint.

    Nothing where options say how many heads there are, and where training starts from
    nothing, from a checkpoint that was not pruned, or from one that cannot be read (fairseq
    says so when it loads it).

    Raises:
        ValueError: options say that other heads are to be copied by than those of the checkpoint.
    """
    path = start_of_heads(args)
    if path is None:
        return {}
    try:
        start = read_model(path)
    except (OSError, ValueError, checkpoints.UnsafeCheckpointError):
        return {}
    if not start.is_pruned:
        return {}
    return {
        **_mappings_of_start(args, start),
        **heads_options(start.options.heads),
        **_copy_of_start(args, start),
    }


def _copy_of_start(args: Any, start: SavedModel) -> dict[str, str]:
    if start.options.copy is None or getattr(args, "copy_heads", None) is None:
        return {}
    of_start, default, given = start.options.copy, CopyConfig(), CopyConfig.of(args)
    own = copy_options(of_start, CopyConfig.of(start.args))
    same_layer = of_start.layer, of_start.layer - len(start.options.heads[CROSS])
    if given.checked("copy_layer") not in (default.checked("copy_layer"), *same_layer):
        return {}  # another layer, whose heads are as they are numbered in the start
    heads = given.checked("copy_heads")
    if heads not in (default.checked("copy_heads"), of_start.heads):
        raise ValueError(
            f"--copy-heads {','.join(map(str, heads))}: {start.path} was pruned, and copies by "
            f"{own['copy_heads']} of the heads left: leave --copy-heads out, or say how many heads "
            f"there are too, as 'fairseq-entmax prune {start.path} --print-config' prints it"
        )
    if given.checked("copy_mapping") is not None:
        own.pop("copy_mapping", None)
    return own


def _mappings_of_start(args: Any, start: SavedModel) -> dict[str, str]:
    text = getattr(args, "attn_mapping", None)
    if text != start.args.attn_mapping or not any(
        isinstance(spec, HeadsSpec) for spec in parse_mapping_option(text)
    ):
        return {}
    left = {option: getattr(start.args, option, None) for option in MAPPING_OPTIONS.values()}
    return {
        option: mapping_text(value)
        for option, value in left.items()
        if value is not None and getattr(args, option, None) is None
    }


def start_of_heads(args: Any) -> str | None:
    """The checkpoint whose heads training may have to take; None where options say how many."""
    if any(getattr(args, name, None) is not None for name in HEADS_OPTIONS.values()):
        return None
    return _start_of(args)


def _start_of(args: Any) -> str | None:
    """The checkpoint that fairseq will load first, if there is one: its own rules."""
    if getattr(args, "save_dir", None) is None:  # no training
        return None
    restore = getattr(args, "restore_file", None) or "checkpoint_last.pt"
    last = os.path.join(args.save_dir, restore)
    for path in (last, getattr(args, "finetune_from_model", None), restore):
        if path and os.path.isfile(path):
            return str(path)
    return None
