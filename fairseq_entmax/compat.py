"""Every difference between fairseq and torch releases, and every hook into fairseq.

Importing this module needs fairseq. It changes two things in fairseq, both by wrapping:
how a checkpoint that carries code is refused, and how the optimiser's state is restored
when the model has parameters that the checkpoint lacks.
"""

from __future__ import annotations

import argparse
import functools
import logging
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

logger = logging.getLogger(__name__)

INSTALL_FAIRSEQ = (
    "this part of fairseq-entmax needs fairseq, which is not installed: run "
    "pip install 'fairseq-entmax[fairseq]', or install a fairseq of your own"
)

try:
    from fairseq import checkpoint_utils
    from fairseq.logging import metrics
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY
    from fairseq.optim import FairseqOptimizer
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "fairseq":
        raise
    raise ModuleNotFoundError(INSTALL_FAIRSEQ, name="fairseq") from None


class UnsafeCheckpointError(RuntimeError):
    """A checkpoint holds something other than tensors and settings, and was not loaded."""


def allow_fairseq_checkpoints() -> None:
    """Let torch's safe loading (the default from torch 2.6) read fairseq's checkpoints.

    The one class in them beyond tensors and plain containers is ``argparse.Namespace``,
    which holds settings and runs no code.
    """
    add_safe_globals = getattr(torch.serialization, "add_safe_globals", None)
    if add_safe_globals is not None:
        add_safe_globals([argparse.Namespace])


def refuse_unsafe_checkpoints() -> None:
    """Make fairseq say plainly that a checkpoint was refused, and by what it holds.

    torch's own message advises to turn its safe loading off.
    """
    load = checkpoint_utils.load_checkpoint_to_cpu
    if getattr(load, "_refuses_unsafe", False):
        return

    @functools.wraps(load)
    def load_safely(path: str, *args: Any, **kwargs: Any) -> Any:
        try:
            return load(path, *args, **kwargs)
        except pickle.UnpicklingError as error:
            raise UnsafeCheckpointError(unsafe_checkpoint_message(path, error)) from None

    load_safely._refuses_unsafe = True  # type: ignore[attr-defined]
    checkpoint_utils.load_checkpoint_to_cpu = load_safely


def load_checkpoint(path: str) -> dict[str, Any]:
    """Read a fairseq checkpoint to the CPU without running anything that it holds.

    Args:
        path: a file that fairseq wrote.

    Returns:
        The checkpoint as saved: ``cfg``, ``model``, ``optimizer_history`` and the rest.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a fairseq checkpoint.
        UnsafeCheckpointError: it holds more than tensors and settings.
    """
    allow_fairseq_checkpoints()
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UnsafeCheckpointError(unsafe_checkpoint_message(path, error)) from None
    except (RuntimeError, EOFError) as error:
        first_line = (str(error).splitlines() or ["the file ends too early"])[0]
        raise ValueError(f"{path} is not a checkpoint, or is damaged: {first_line}") from None
    if not isinstance(state, dict) or "model" not in state:
        raise ValueError(f"{path} is not a fairseq checkpoint: it holds no 'model'")
    return state


def unsafe_checkpoint_message(path: str, error: Exception) -> str:
    """One sentence on what was refused, from torch's many."""
    reason = next(
        (line for line in str(error).splitlines() if "Unsupported" in line or "global" in line),
        str(error).partition("\n")[0],
    )
    return (
        f"refused to load {path}: it holds more than tensors and settings, and could run code "
        f"when loaded, or it is damaged ({reason.strip()}). Nothing of it was run. Get the "
        f"checkpoint from a source that you trust, or have its owner save it again"
    )


def avoid_fused_encoder_layer(layer: nn.Module) -> None:
    """Keep an encoder layer off torch's fused layer, which knows softmax alone.

    fairseq 0.12.2 takes it in evaluation where this flag is set; later releases do not
    have it.
    """
    if hasattr(layer, "can_use_fastpath"):
        layer.can_use_fastpath = False  # type: ignore[assignment]


def trainer_num_updates() -> int | None:
    """How many updates fairseq's trainer has made in this process; None without one."""
    meter = metrics.get_meter("default", "num_updates")
    value = getattr(meter, "val", None)
    return None if value is None else int(value)


def log_when_shown(name: str, value: Callable[[], float]) -> None:
    """Log a metric whose value is worked out only when fairseq shows it."""
    metrics.log_derived(name, lambda meters: value(), priority=800)


def stock_architectures() -> dict[str, Callable[[Any], None]]:
    """The named architectures of fairseq's ``transformer``, with their functions."""
    return {
        name: ARCH_CONFIG_REGISTRY[name]
        for name in ARCH_MODEL_INV_REGISTRY["transformer"]
        if name.startswith("transformer")
    }


def restore_optimizer_of_grown_models() -> None:
    """Let the optimiser restore its state when the model gained parameters.

    fairseq hands the state of the checkpoint to an optimiser that was built for the present
    model. Parameters that were marked by :func:`mark_as_new` have no state there: they
    start without, as in a new optimiser, and the others get theirs.
    """
    load = FairseqOptimizer.load_state_dict
    if getattr(load, "_fills_new", False):
        return

    @functools.wraps(load)
    def load_state_dict(self: Any, state_dict: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        state_dict = _without_new_parameters(state_dict, self.param_groups)
        _check_flat_sizes(state_dict, self.param_groups)
        load(self, state_dict, *args, **kwargs)

    load_state_dict._fills_new = True  # type: ignore[attr-defined]
    FairseqOptimizer.load_state_dict = load_state_dict


def mark_as_new(parameter: Tensor, new: bool) -> None:
    """Say whether a parameter was absent from the checkpoint that the model was loaded from."""
    parameter._absent_from_checkpoint = new  # type: ignore[attr-defined]


def _without_new_parameters(
    state_dict: dict[str, Any], groups: list[dict[str, Any]]
) -> dict[str, Any]:
    """The optimiser state with its parameters renumbered around the new ones."""
    saved_groups = state_dict.get("param_groups")
    if not saved_groups or len(saved_groups) != len(groups):
        return state_dict
    renumbered: dict[int, int] = {}
    new_groups = []
    position = 0
    for saved, group in zip(saved_groups, groups, strict=True):
        is_new = [getattr(p, "_absent_from_checkpoint", False) for p in group["params"]]
        if len(saved["params"]) != is_new.count(False):
            # Also where nothing is new: the optimiser itself says what does not fit
            return state_dict
        old = iter(saved["params"])
        ids = []
        for new in is_new:
            if not new:
                renumbered[next(old)] = position
            ids.append(position)
            position += 1
        new_groups.append({**saved, "params": ids})
    state = {renumbered.get(key, key): value for key, value in state_dict["state"].items()}
    return {**state_dict, "state": state, "param_groups": new_groups}


def _check_flat_sizes(state_dict: dict[str, Any], groups: list[dict[str, Any]]) -> None:
    """Refuse state of another size, which torch would take and stumble over a step later.

    With ``--fp16`` and ``--bf16`` fairseq keeps all parameters in one flat tensor, in which
    the state of new parameters has no place.
    """
    parameters = [parameter for group in groups for parameter in group["params"]]
    for position, parameter in enumerate(parameters):
        for value in state_dict.get("state", {}).get(position, {}).values():
            is_flat = isinstance(value, Tensor) and value.dim() == 1 == parameter.dim()
            if is_flat and value.numel() != parameter.numel():
                raise ValueError(
                    f"the checkpoint's optimizer state is for {value.numel()} parameters, the "
                    f"model has {parameter.numel()}: continue it with --reset-optimizer, or "
                    f"use --finetune-from-model instead of --restore-file"
                )
