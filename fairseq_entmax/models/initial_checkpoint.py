"""The checkpoint that training starts from, and what a model takes from it besides the weights."""

from __future__ import annotations

import os
import re
from typing import Any

from fairseq_entmax.attentions import CROSS
from fairseq_entmax.mappings.layers import LayerSpec, PerHeadSpec, layers_text
from fairseq_entmax.models import values
from fairseq_entmax.models.checkpoint_model import CheckpointModel, read_model
from fairseq_entmax.models.feature import ModelOptions
from fairseq_entmax.models.features.attention_heads import (
    HEADS_OPTIONS,
    MAPPING_OPTIONS,
    heads_options,
)
from fairseq_entmax.models.features.copying import Copying

_LAST = "checkpoint_last.pt"
_CAN_CHANGE = re.compile(r":(warmup|lr_factor|\w*init)=[^:]*")  # on resuming, in a mapping's text


def initial_checkpoint_of(args: Any) -> str | None:
    """The checkpoint that fairseq will load first; None if there is none, or outside training.

    Also None if options give the numbers of heads.
    """
    has_counts = any(getattr(args, name, None) is not None for name in HEADS_OPTIONS.values())
    if has_counts or getattr(args, "save_dir", None) is None:
        return None
    restore, names = getattr(args, "restore_file", None), ("continue_once", "finetune_from_model")
    last = os.path.join(args.save_dir, _with_suffix(args, _LAST))
    paths = [last, *(getattr(args, name, None) for name in names)]
    if restore not in (None, _LAST):  # fairseq then looks nowhere else
        paths = [_with_suffix(args, restore)]
    return next((str(path) for path in paths if path and os.path.isfile(path)), None)


def _with_suffix(args: Any, path: str) -> str:
    return path.replace(".pt", f"{getattr(args, 'checkpoint_suffix', None) or ''}.pt")


def read_initial_checkpoint(args: Any) -> CheckpointModel | None:
    """The model that training starts from; None if there is none, or if it cannot be read."""
    path = initial_checkpoint_of(args)
    try:
        return read_model(path) if path is not None else None
    except (OSError, ValueError):
        return None


def check_resumed(args: Any, options: ModelOptions, initial: CheckpointModel | None) -> None:
    """Refuse mappings that differ from those of the training in the save folder, which would go on."""
    if initial is None or initial.path != os.path.join(args.save_dir, _with_suffix(args, _LAST)):
        return
    for attention, theirs in initial.options.specs.items():
        ours = options.specs.get(attention, [])
        for pair in zip(theirs, ours, strict=True) if len(theirs) == len(ours) else ():
            old, new = ([_CAN_CHANGE.sub("", one) for one in _heads_of(spec)] for spec in pair)
            if old * len(new) != new * len(old):  # one text can stand for all heads
                raise ValueError(
                    f"{initial.path} is of a training with the {attention} mapping {layers_text(theirs)}, "
                    f"not {layers_text(ours)}: give another --save-dir, or the mapping of that training"
                )


def options_of_initial_checkpoint(args: Any, initial: CheckpointModel | None) -> dict[str, str]:
    """Options for the heads of the pruned checkpoint that training starts from.

    They include per-head mappings, if the options are those of the model before pruning, and the
    copy heads, which pruning has renumbered. Empty if training does not start from a pruned checkpoint.
    """
    if initial is None or not initial.is_pruned:
        return {}
    return {
        **_mappings_of(args, initial),
        **heads_options(initial.options.heads),
        **_copying_of(args, initial),
    }


def _copying_of(args: Any, initial: CheckpointModel) -> dict[str, str]:
    if initial.options.copy is None or getattr(args, "copy_heads", None) is None:
        return {}
    copying, default, wanted = initial.options.copy, Copying.read(None), Copying.read(args)
    same_layer = copying.layer, copying.layer - len(initial.options.heads[CROSS])
    if wanted.copy_layer not in (default.copy_layer, *same_layer):
        return {}  # in another layer, --copy-heads already numbers heads as the checkpoint does
    options: dict[str, str] = copying.arguments(copying.copy_heads)
    if wanted.copy_heads not in (default.copy_heads, copying.copy_heads):
        raise ValueError(
            f"--copy-heads {','.join(map(str, wanted.copy_heads))}: {initial.path} was pruned, and its copy heads "
            f"are now {options['copy_heads']}: leave --copy-heads out, or also give the numbers of heads "
            f"that 'fairseq-entmax prune {initial.path} --print-config' prints"
        )
    if wanted.copy_mapping is not None:
        options.pop("copy_mapping", None)
    return options


def _mappings_of(args: Any, initial: CheckpointModel) -> dict[str, str]:
    text, options = getattr(args, "attn_mapping", None), {}
    if text != initial.args.attn_mapping:
        return {}
    has_heads = any(isinstance(one, PerHeadSpec) for one in values.parse_layers_option(text).layers)
    for attention, option in MAPPING_OPTIONS.items():
        theirs, ours = (getattr(one, option, None) for one in (initial.args, args))
        if theirs is not None and (
            has_heads if ours is None else _is_unpruned(initial, attention, ours)
        ):
            options[option] = values.mapping_text(theirs)
    return options


def _is_unpruned(initial: CheckpointModel, attention: str, option: Any) -> bool:
    """Whether an option lists the heads that a pruned model's attention has, among those that it had."""
    specs, most = initial.options.specs[attention], initial.options.places[attention]
    try:
        layers = values.parse_layers_option(option).of_layers(len(specs))
    except ValueError:  # whoever reads the option will say so
        return False
    pairs = [(_heads_of(before), _heads_of(now)) for before, now in zip(layers, specs, strict=True)]
    return all(len(before) in (1, most) for before, _ in pairs) and all(
        one in before
        for before, now in ((iter(before), now) for before, now in pairs)
        for one in now
    )


def _heads_of(spec: LayerSpec) -> list[str]:
    return [str(one) for one in (spec.heads if isinstance(spec, PerHeadSpec) else (spec,))]
