"""The settings in a checkpoint, adapted to its model after heads were removed."""

from __future__ import annotations

import copy
from argparse import Namespace
from typing import Any

from fairseq_entmax.criterions import plain_criterion
from fairseq_entmax.models.checkpoint_model import CheckpointModel


def settings_of(
    cfg: dict[str, Any] | None, model: CheckpointModel, options: dict[str, str]
) -> dict[str, Any] | None:
    """The checkpoint's settings, for a model with these options."""
    if cfg is None:
        return None
    cfg = copy.deepcopy(cfg)
    cfg["model"] = model_settings(cfg["model"], model, options)
    if isinstance(cfg.get("criterion"), dict):
        cfg["criterion"] = plain_criterion(cfg["criterion"])
    return cfg


def model_settings(settings: Any, model: CheckpointModel, options: dict[str, str]) -> Any:
    """The settings of a model with these options and no gates."""
    if settings is None:
        return None
    values = vars(settings) if isinstance(settings, Namespace) else settings
    if model.args.arch != model.architecture:  # a stock model, which has become one of this package
        values["attn_mapping"] = model.args.attn_mapping
        for key in ("arch", "_name"):
            if values.get(key) == model.architecture:
                values[key] = model.args.arch
    values |= {**options, "head_gates": None, "freeze_decoder": False}
    if isinstance(values.get("criterion"), str):
        values["criterion"] = plain_criterion({"_name": values["criterion"]})["_name"]
    return settings


def without_history(extra_state: Any) -> Any:
    """fairseq's extra state without moving averages and without the metrics of training."""
    if not isinstance(extra_state, dict):
        return extra_state
    gone = ("ema", "metrics", "best")
    return {key: value for key, value in extra_state.items() if not key.startswith(gone)}
