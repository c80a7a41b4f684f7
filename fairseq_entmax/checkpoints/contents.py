"""What a checkpoint has beside its weights and the settings of its model: whether it can be that.

Nothing here is dangerous; it would end in an error of Python's where it is used.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping as Dictionary
from typing import Any

from torch import Tensor

from fairseq_entmax.checkpoints.errors import MalformedCheckpointError, shortened

_COUNT = "the number of updates, a whole number of 0 or more"
_GROUPS = ("model", "task", "criterion")


def malformed(path: str, what: str, value: str, wanted: str) -> MalformedCheckpointError:
    """The error for something in a checkpoint that makes no sense.

    Args:
        path: the file.
        what: is wrong, such as ``setting encoder_layers``.
        value: what it is, as it is to be written.
        wanted: what it has to be.
    """
    return MalformedCheckpointError(
        f"{path} is malformed: its {what} is {value}, and has to be {wanted}; take another "
        f"checkpoint of the training, or have its owner save it again"
    )


def check_contents(state: Dictionary[str, Any], path: str) -> None:
    """Refuse a checkpoint whose parts are of other types than fairseq's trainer writes.

    What is not there is not looked at, but for the weights: fairseq's versions write different
    parts.

    Args:
        state: a checkpoint as torch read it, which has passed
            :func:`fairseq_entmax.checkpoints.settings.check_settings`.
        path: the file, for the message.

    Raises:
        MalformedCheckpointError: names the part, what it is, and what it has to be.
    """
    for part, wanted in (("extra_state", "a dictionary"), ("last_optimizer_state", "a dictionary")):
        if not isinstance(state.get(part), Dictionary | None):
            raise malformed(path, part, shortened(state[part]), wanted)
    for group in _GROUPS:
        cfg = state.get("cfg")
        settings = cfg.get(group) if isinstance(cfg, dict) else None
        if not isinstance(settings, dict | argparse.Namespace | None):
            raise malformed(path, f"cfg.{group}", shortened(settings), "a group of settings")
        values = vars(settings) if isinstance(settings, argparse.Namespace) else settings or {}
        if not isinstance(values.get("_name"), str | None):
            raise malformed(path, f"cfg.{group}._name", shortened(values["_name"]), "a text")
    _check_extra(state.get("extra_state") or {}, path)
    _check_history(state.get("optimizer_history"), path)
    _check_optimizer(state.get("last_optimizer_state"), path)


def updates_of(state: Dictionary[str, Any]) -> int | None:
    """For how many updates a checked checkpoint was trained; None where it does not say."""
    history = state.get("optimizer_history") or [{}]
    number: int | None = history[-1].get("num_updates")
    return number


def _check_extra(extra: Dictionary[Any, Any], path: str) -> None:
    """Refuse where a training stood, and what it measured, that is not as fairseq writes it."""
    for key in ("previous_training_time", "best", "val_loss"):
        value = extra.get(key)
        # A tensor where a criterion's number is not rounded
        is_one = isinstance(value, Tensor) and value.numel() == 1
        if type(value) not in (int, float, type(None)) and not is_one:
            raise malformed(path, f"extra_state['{key}']", shortened(extra[key]), "a number")
    iterator = extra.get("train_iterator")
    if not isinstance(iterator, Dictionary | None):
        raise malformed(path, "extra_state['train_iterator']", shortened(iterator), "a dictionary")
    for key in ("epoch", "iterations_in_epoch"):
        value = (iterator or {}).get(key)
        if value is not None and (type(value) is not int or value < 0):
            where, wanted = f"extra_state['train_iterator']['{key}']", "a whole number of 0 or more"
            raise malformed(path, where, shortened(value), wanted)
    metrics = extra.get("metrics") or {}
    if not isinstance(metrics, Dictionary) or not all(
        isinstance(meters, list) and all(map(_is_meter, meters)) for meters in metrics.values()
    ):
        wanted = "lists of meters, by name: priority, name, class and state of each"
        raise malformed(path, "extra_state['metrics']", shortened(metrics), wanted)


def _is_meter(meter: Any) -> bool:
    if not isinstance(meter, list | tuple) or len(meter) != 4:
        return False
    priority, name, kind, state = meter
    return (
        type(priority) in (int, float)
        and isinstance(name, str)
        and isinstance(kind, str)
        and kind.endswith("Meter")
        and isinstance(state, Dictionary)
    )


def _check_history(history: Any, path: str) -> None:
    if history is None:
        return
    if not isinstance(history, list | tuple):
        wanted = "a list with a dictionary for each optimizer of the training"
        raise malformed(path, "optimizer_history", shortened(history), wanted)
    for number, entry in enumerate(history):
        name = f"optimizer_history[{number}]"
        if not isinstance(entry, Dictionary):
            raise malformed(path, name, shortened(entry), "a dictionary")
        updates = entry.get("num_updates")
        if updates is not None and (type(updates) is not int or updates < 0):
            raise malformed(path, f"{name}['num_updates']", shortened(updates), _COUNT)
        for key in ("criterion_name", "optimizer_name"):
            if not isinstance(entry.get(key), str | None):
                raise malformed(path, f"{name}['{key}']", shortened(entry[key]), "a text")
        if not isinstance(entry.get("lr_scheduler_state"), Dictionary | None):
            what = shortened(entry["lr_scheduler_state"])
            raise malformed(path, f"{name}['lr_scheduler_state']", what, "a dictionary")


def _check_optimizer(optimizer: Any, path: str) -> None:
    """Refuse the state of one optimizer that is not as torch writes it; others are let through."""
    if optimizer is None:
        return
    parts = {"state", "param_groups"}
    for name in sorted(parts - optimizer.keys()) if parts & optimizer.keys() else ():
        raise malformed(path, f"last_optimizer_state['{name}']", "missing", "there")
    for name, kind in (("state", Dictionary), ("param_groups", list)):
        if not isinstance(optimizer.get(name), kind | None):
            wanted = "a list of groups of parameters" if kind is list else "a dictionary"
            where = f"last_optimizer_state['{name}']"
            raise malformed(path, where, shortened(optimizer[name]), wanted)
    for group in optimizer.get("param_groups") or ():
        if not isinstance(group, Dictionary) or not isinstance(group.get("params"), list):
            what = shortened(group) if not isinstance(group, Dictionary) else "one without params"
            wanted = "a dictionary with the list params"
            raise malformed(path, "last_optimizer_state, in a group of it,", what, wanted)
