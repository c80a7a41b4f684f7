"""The settings in a checkpoint: what they may contain, and the options of the model."""

from __future__ import annotations

import argparse
import itertools
import re
from collections.abc import Iterator
from collections.abc import Mapping as Dictionary
from typing import Any

TRUST = "Nothing in it was run. Get the checkpoint from a source that you trust"

# Settings by which fairseq runs something, and the values besides None that they may have. With
# dataset_impl fasta, fairseq hands the name of the data file to a shell
_ONLY = {
    "dataset_impl": ("raw", "lazy", "cached", "mmap", "huffman", ""),
    "save_predictions": ("",),
    "post_save_script": ("",),
}
# A reference to another setting; ${oc.env:HOME} would call a function
_REFERENCE = re.compile(r"\$\{((?:\w+\.)*(\w+))\}")
_MOST_REFERENCES = 10
# fairseq has about a thousand settings, nested as lists of lists at most; its settings library
# takes minutes for lists 200 deep, or for a million settings
MOST_DEPTH, MOST_SETTINGS = 20, 20_000


class UnsafeCheckpointError(ValueError):
    """A file was not loaded: it is no checkpoint, or holds something that could run code."""


def check_settings(state: Dictionary[str, Any], path: str) -> None:
    """Refuse settings that are not plain values, or by which fairseq would run something.

    Texts that fairseq evaluates need no check here: its modules are made to read only plain values.
    """
    for part, expected in (("cfg", dict), ("args", argparse.Namespace)):
        group = state.get(part)
        if group is not None and type(group) is not expected:
            # fairseq would parse a text as YAML, after this check
            raise _refusal(path, part, group, "is not a group of settings")
        _check(part, group, path, itertools.count())


def _check(name: str, value: Any, path: str, numbers: Iterator[int], depth: int = 0) -> None:
    if depth > MOST_DEPTH:
        raise _refusal(path, name, value, f"is more than {MOST_DEPTH} levels deep")
    if next(numbers) > MOST_SETTINGS:
        raise _refusal(path, name, value, f"comes after more than {MOST_SETTINGS:,} others")
    if type(value) is argparse.Namespace:
        value = vars(value)
    # No other mappings: an OrderedDict can have attributes, and fairseq would read those
    if type(value) is dict:
        for key, entry in value.items():
            _check(str(key), entry, path, numbers, depth + 1)
    elif type(value) in (list, tuple):
        for entry in value:
            _check(name, entry, path, numbers, depth + 1)
    elif type(value) not in (str, int, float, bool, type(None)):
        raise _refusal(path, name, value, "is not a plain value")
    else:
        reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if reference is None and "${" in str(value):
            raise _refusal(path, name, value, "is more than a reference to another setting")
        # If the setting it refers to has the same name, that one is checked
        is_checked = reference is not None and reference[2] == name
        if name in _ONLY and value not in (*_ONLY[name], None) and not is_checked:
            raise _refusal(path, name, value, "would run a command or write a file")


def _refusal(path: str, name: str, value: Any, reason: str) -> UnsafeCheckpointError:
    kinds = str | int | float
    what = repr(value)[:80] if isinstance(value, kinds) else f"a {type(value).__name__}"
    return UnsafeCheckpointError(
        f"refused to load {path}: its setting {name:.80} = {what} {reason}. {TRUST}"
    )


def model_settings(state: Dictionary[str, Any], name: str) -> dict[str, Any]:
    """The options of the model in a loaded checkpoint.

    A reference such as ``${task.max_target_positions}`` is replaced by the value it refers to.
    """
    root = state.get("cfg") or state.get("args")
    settings = root.get("model") if isinstance(root, dict) else root
    if isinstance(settings, argparse.Namespace):
        settings = vars(settings)
    if not isinstance(settings, dict):
        raise ValueError(
            f"{name} does not say which model it is of: it has neither 'cfg' nor 'args'"
        )
    return {option: _referred(value, root) for option, value in settings.items()}


def _referred(value: Any, root: Any) -> Any:
    for _ in range(_MOST_REFERENCES):
        reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
        if reference is None:
            break
        value = root
        for name in reference[1].split("."):
            value = vars(value) if isinstance(value, argparse.Namespace) else value
            value = value.get(name) if isinstance(value, dict) else None
    return value
