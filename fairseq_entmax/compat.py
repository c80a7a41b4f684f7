"""Small helpers around fairseq and torch, and the place for what differs between their releases.

Importing this module needs fairseq and changes nothing in it. It silences warnings that users of
fairseq cannot act on (:mod:`fairseq_entmax.warning_filters`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_entmax import warning_filters

INSTALL_FAIRSEQ = (
    "this part of fairseq-entmax needs fairseq, which is not installed: run "
    "pip install 'fairseq-entmax[fairseq]', or install your own fairseq"
)

warning_filters.hush()  # before fairseq warns
try:
    from fairseq.logging import metrics
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "fairseq":
        raise
    raise ModuleNotFoundError(INSTALL_FAIRSEQ, name="fairseq") from None


def has_global_hooks() -> bool:
    """Whether hooks on all modules are registered, as by ``register_module_forward_hook``."""
    # torch's own function is missing in 2.6
    kinds = ("forward_pre", "forward", "backward_pre", "backward")
    return any(getattr(nn.modules.module, f"_global_{kind}_hooks") for kind in kinds)


def computing_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype that a linear layer makes of a tensor: the tensor's own, or that of autocast."""
    device = tensor.device.type
    # Autocast does not change float64
    if torch.is_autocast_enabled(device) and tensor.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return tensor.dtype


_trainer: weakref.ref[Any] | None = None


def follow_trainer(trainer: Any) -> None:
    """Make :func:`last_trainer` return this trainer of fairseq's, while it lives."""
    global _trainer
    _trainer = weakref.ref(trainer)


def last_trainer() -> Any:
    """The last trainer of a model of this package; None without one."""
    return None if _trainer is None else _trainer()


def trainer_num_updates() -> int | None:
    """How many updates :func:`last_trainer` has made; None without one.

    fairseq tells a model this number only before each step, and its meter of that name stands still
    when training resumes in the middle of an epoch."""
    trainer = last_trainer()
    return None if trainer is None else trainer.get_num_updates()


def option(default: Any, help: str) -> Any:
    """An option in a dataclass of fairseq's, with its help."""
    return field(default=default, metadata={"help": help})


def log_when_shown(name: str, value: Callable[..., float], *objects: Any) -> None:
    """Log a metric whose value is computed only when fairseq shows it.

    ``value`` gets those of the objects that still exist: fairseq keeps its metrics as long as the
    process lives, and they must not keep a model alive."""
    references = [weakref.ref(each) for each in objects]

    def look(meters: Any) -> float:
        there = (reference() for reference in references)
        return value(*(each for each in there if each is not None))

    metrics.log_derived(name, look, priority=800)


def fill_in(state_dict: dict[str, Any], parameters: Iterable[tuple[str, Any]]) -> list[str]:
    """Fill in what a checkpoint lacks, mark it for :func:`is_new`, and return the names."""
    filled = []
    for name, value in parameters:
        value._absent_from_checkpoint = name not in state_dict
        if is_new(value):
            state_dict[name] = value.detach().clone()
            filled.append(name)
    return filled


def is_new(parameter: Tensor) -> bool:
    """Whether a parameter was missing from the checkpoint that the model was loaded from."""
    return getattr(parameter, "_absent_from_checkpoint", False)
