"""The settings in a checkpoint: what they may consist of."""

from __future__ import annotations

import argparse
import re
from collections import OrderedDict
from collections.abc import Iterator
from collections.abc import Mapping as Dictionary
from typing import Any

from fairseq_entmax.checkpoints.errors import TRUST, UnsafeCheckpointError, shortened
from fairseq_entmax.checkpoints.literals import read_literal
from fairseq_entmax.checkpoints.sizes import check_sizes, check_transformer

# How the names of settings end that fairseq evaluates, of all its models, tasks, criterions and
# optimisers. Beside this list fairseq's modules have an ``eval`` that runs nothing: the list is
# for a message that names the setting, before anything is built.
EVALUATED = (
    *("adaptive_softmax_cutoff", "adaptive_input_cutoff", "character_filters"),
    *("conv_feature_layers", "conv_aggregator_layers", "override_encoder_layers"),
    *("encoder_layers", "decoder_layers", "encoder_attention", "decoder_attention"),
    *("self_attention", "project_input", "gated_attention", "downsample", "pretrained"),
    *("adam_betas", "adamax_betas", "lamb_betas", "adafactor_eps", "wer_args"),
    *("xformers_att_config", "feature_encoder_spec", "left_pad_source", "left_pad_target"),
    *("pipeline_balance", "pipeline_devices", "zero_init", "encoder_glu", "decoder_glu"),
    *("weight_softmax", "vggblock_enc_config", "transformer_enc_config"),
    *("transformer_dec_config", "conv_dec_config", "conv_enc_config", "transformer_context"),
    *("transformer_sampling", "sampling_weights"),
    *("pipeline_encoder_balance", "pipeline_encoder_devices"),
    *("pipeline_decoder_balance", "pipeline_decoder_devices"),
)
# Names that pick a part of fairseq
NAMES = ("_name", "arch", "task", "criterion", "optimizer", "lr_scheduler", "bpe", "tokenizer")
# How data may be stored; fairseq's other way, fasta, runs a shell with the name of the file
DATASET_IMPLEMENTATIONS = ("raw", "lazy", "cached", "mmap", "huffman", "")

# Names of files that fairseq writes, and of commands that it runs
WRITTEN_OR_RUN = ("save_predictions", "post_save_script")

DEEPEST = 20
MOST_VALUES = 100_000
LONGEST_TEXT = 2**16  # characters
LARGEST_NUMBER = 2**64

_NAME = re.compile(r"[\w.+-]*")
_REFERENCE = re.compile(r"\$\{[A-Za-z_][\w.]*\}")


def check_settings(state: Dictionary[str, Any], path: str) -> None:
    """Refuse settings that are more than plain values, or that could run code or fill memory.

    Allowed are texts, numbers, True, False, None, and lists, tuples, dictionaries and
    namespaces of them.

    Args:
        state: a checkpoint as torch read it.
        path: the file, for the message.

    Raises:
        UnsafeCheckpointError: names the setting and its value.
    """
    _check_dictionary("checkpoint", state, path)
    _check_dictionary("model", state.get("model", {}), path)
    for part, kind in (("cfg", dict), ("args", argparse.Namespace)):
        group = state.get(part)
        if group is None:
            continue
        if type(group) is not kind:
            # fairseq would read a text as YAML, behind this check
            raise _refusal(path, part, group, "must be a group of settings")
        settings = [
            (name, _checked(name, value, group, path)) for name, value in _settings(group, path)
        ]
        check_sizes(settings, state.get("model"), path)
        model = group.get("model") if isinstance(group, dict) else group
        model = vars(model) if isinstance(model, argparse.Namespace) else model
        if isinstance(model, dict):
            model = {name: referred(value, group)[0] for name, value in model.items()}
            check_transformer(model, state.get("model"), path)


def _check_dictionary(part: str, entries: Any, path: str) -> None:
    """Refuse attributes beside the entries: they would come before the dictionary's methods."""
    attributes = vars(entries) if type(entries) is OrderedDict else {}
    if type(entries) not in (dict, OrderedDict) or not attributes.keys() <= {"_metadata"}:
        raise _refusal(path, part, entries, "must be a plain dictionary")


def _checked(name: str, value: Any, group: Any, path: str) -> Any:
    """The value of a setting, or what it refers to, which is allowed."""
    reason = _fault(name, value)
    if reason is None:
        value, reason = referred(value, group)
        reason = reason or _fault(name, value)
    if reason is not None:
        raise _refusal(path, name, value, reason)
    return value


def _refusal(path: str, name: str, value: Any, reason: str) -> UnsafeCheckpointError:
    return UnsafeCheckpointError(
        f"refused to load {path}: its setting {shortened(name).strip(chr(39))} = "
        f"{shortened(value)} {reason}; nothing of it was run. {TRUST}"
    )


def _settings(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every value among nested settings, with the name of its innermost setting.

    Lists come as wholes, and then their entries under the list's name.

    Raises:
        UnsafeCheckpointError: the settings are nested too deep, or are too many.
    """
    open_groups: list[tuple[str, Any, int]] = [("settings", group, 0)]
    number = 0
    while open_groups:
        name, value, depth = open_groups.pop()
        number += 1
        if number > MOST_VALUES:
            raise _refusal(path, name, value, f"is one of more than {MOST_VALUES:,} values")
        if depth > DEEPEST:
            raise _refusal(path, name, value, f"is nested more than {DEEPEST} deep")
        if type(value) is argparse.Namespace:
            value = vars(value)
        # No other mappings: an OrderedDict has attributes, which fairseq would read instead
        if type(value) is dict:
            for key, entry in value.items():
                if type(key) not in (str, int) or str(key).startswith("__") or len(str(key)) > 1000:
                    raise _refusal(path, name, key, "is no name of a setting")
                open_groups.append((str(key), entry, depth + 1))
            continue
        yield name, value
        if isinstance(value, list | tuple):
            open_groups += [(name, entry, depth + 1) for entry in value]


def _fault(name: str, value: Any) -> str | None:
    """What is wrong with a value, to stand behind it in a sentence; None for nothing."""
    if type(value) not in (str, int, float, bool, list, tuple, type(None)):
        return "is no plain value, which is all that a setting may be"
    if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        return f"is a number of more than {LARGEST_NUMBER:,}"
    if name in WRITTEN_OR_RUN and value not in (None, ""):
        return "would write a file or run a command, which a checkpoint may not"
    if not isinstance(value, str):
        return None
    if len(value) > LONGEST_TEXT:
        return f"is a text of more than {LONGEST_TEXT:,} characters"
    if _REFERENCE.fullmatch(value):
        return None  # what it refers to is looked at in its place
    if name in NAMES and not _NAME.fullmatch(value):
        return "is no name of a part of fairseq"
    if name == "dataset_impl" and value not in DATASET_IMPLEMENTATIONS:
        return f"is no way to store data that is safe: {', '.join(DATASET_IMPLEMENTATIONS[:-1])}"
    if name.endswith(EVALUATED) and not _is_literal(value):
        return "is a text that fairseq would run as code, and not a plain value"
    return None


def _is_literal(text: str) -> bool:
    """Whether ``eval`` would find a plain value, or no more than a name, and exactly there."""
    if text == "" or (text.isidentifier() and len(text) < 100):
        return True
    try:
        read_literal(text)
    except ValueError:
        return False
    return True


def referred(value: Any, group: Any) -> tuple[Any, str | None]:
    """What fairseq's settings library puts in a value's place, or the value with its fault.

    ``${optimization.lr}`` stands for another setting; ``${oc.env:HOME}`` calls a function.
    """
    start = value
    for _ in range(DEEPEST):
        if not isinstance(value, str) or "${" not in value:
            return value, None
        if not _REFERENCE.fullmatch(value):
            return start, "is replaced by more than the value of another setting"
        names = value[2:-1].split(".")
        value = group
        for name in names:
            value = vars(value) if isinstance(value, argparse.Namespace) else value
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, dict | argparse.Namespace | list | tuple):
            return start, "is replaced by a whole group of settings"
    return start, "is replaced by itself"
