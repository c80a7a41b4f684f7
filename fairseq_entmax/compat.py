"""Every difference between fairseq and torch releases, and what fairseq has no hook for.

Importing this module needs fairseq. Methods of fairseq are wrapped, once, when a model of
this package is registered: ``Trainer.set_num_updates`` and ``Trainer.__init__``, to know how
many updates were made; ``FairseqOptimizer.load_state_dict``, to restore the optimiser's state
when the model has parameters that the checkpoint lacks; and ``EMA.__init__``, which takes
every number of a model for one that can be averaged.
"""

from __future__ import annotations

import argparse
import functools
import logging
import os
import pickle
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

INSTALL_FAIRSEQ = (
    "this part of fairseq-entmax needs fairseq, which is not installed: run "
    "pip install 'fairseq-entmax[fairseq]', or install a fairseq of your own"
)

try:
    from fairseq.logging import metrics
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_INV_REGISTRY
    from fairseq.models.ema.ema import EMA
    from fairseq.optim import FairseqOptimizer
    from fairseq.trainer import Trainer
except ModuleNotFoundError as error:
    if error.name is None or error.name.partition(".")[0] != "fairseq":
        raise
    raise ModuleNotFoundError(INSTALL_FAIRSEQ, name="fairseq") from None


def avoid_fused_encoder_layer(layer: nn.Module) -> None:
    """Keep an encoder layer off torch's fused layer, which knows softmax alone.

    fairseq 0.12.2 takes it in evaluation where this flag is set; later releases do not
    have it.
    """
    if hasattr(layer, "can_use_fastpath"):
        layer.can_use_fastpath = False  # type: ignore[assignment]


def computing_dtype(tensor: Tensor) -> torch.dtype:
    """What a linear layer makes of a tensor: its own dtype, or that of autocast."""
    device = tensor.device.type
    try:
        enabled = torch.is_autocast_enabled(device)
    except TypeError:  # torch before 2.4 has a function for each device
        is_gpu = device == "cuda"
        enabled = torch.is_autocast_enabled() if is_gpu else torch.is_autocast_cpu_enabled()
        if enabled and tensor.dtype != torch.float64:
            return torch.get_autocast_gpu_dtype() if is_gpu else torch.get_autocast_cpu_dtype()
        return tensor.dtype
    # Autocast leaves float64 as it is
    if enabled and tensor.dtype != torch.float64:
        return torch.get_autocast_dtype(device)
    return tensor.dtype


def safe_loading() -> dict[str, Any]:
    """Arguments by which ``torch.load`` reads fairseq's checkpoints and runs nothing.

    torch before 2.4 has a safe loader that cannot be told of the one class in them beyond
    tensors and plain containers, ``argparse.Namespace``, which holds settings and runs no code.
    There, Python's own unpickler reads what that loader would, and this class.
    """
    add_safe_globals = getattr(torch.serialization, "add_safe_globals", None)
    if add_safe_globals is None:
        return {"weights_only": False, "pickle_module": restricted_pickle()}
    add_safe_globals([argparse.Namespace])
    return {"weights_only": True}


def restricted_pickle() -> ModuleType:
    """A module like ``pickle`` that loads what torch's safe loader does, and ``Namespace``."""
    from torch._weights_only_unpickler import _get_allowed_globals

    allowed = {**_get_allowed_globals(), "argparse.Namespace": argparse.Namespace}

    python_unpickler: Any = pickle._Unpickler  # whose operations can be changed

    class Unpickler(python_unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if f"{module}.{name}" not in allowed:
                raise pickle.UnpicklingError(f"GLOBAL {module}.{name} is not allowed")
            return allowed[f"{module}.{name}"]

        def load_build(self) -> None:
            # A state can set any attribute, of a function or class too
            if type(self.stack[-2]) not in (argparse.Namespace, OrderedDict, Tensor, nn.Parameter):
                raise pickle.UnpicklingError(f"GLOBAL {type(self.stack[-2])} may have no state")
            super().load_build()

    Unpickler.dispatch = {**python_unpickler.dispatch, pickle.BUILD[0]: Unpickler.load_build}

    def load(file: Any, **options: Any) -> Any:
        return Unpickler(file, **options).load()

    restricted = ModuleType("restricted_pickle")
    vars(restricted).update({**vars(pickle), "Unpickler": Unpickler, "load": load})
    return restricted


_trainer_updates: int | None = None


def trainer_num_updates() -> int | None:
    """How many updates fairseq's trainer has made; None without one, or before its first.

    The meter of that name in fairseq's metrics does not do: when a training goes on in the
    middle of an epoch, it stays at the number of the checkpoint.
    """
    return _trainer_updates


def follow_trainer() -> None:
    """Keep the number of updates that :func:`trainer_num_updates` returns."""
    set_num_updates = Trainer.set_num_updates
    if getattr(set_num_updates, "_is_followed", False):
        return

    @functools.wraps(set_num_updates)
    def followed(self: Any, num_updates: int) -> None:
        global _trainer_updates
        set_num_updates(self, num_updates)
        _trainer_updates = num_updates

    followed._is_followed = True  # type: ignore[attr-defined]
    Trainer.set_num_updates = followed
    init = Trainer.__init__

    @functools.wraps(init)
    def begun(self: Any, *args: Any, **kwargs: Any) -> None:
        global _trainer_updates
        init(self, *args, **kwargs)
        _trainer_updates = None

    Trainer.__init__ = begun


def stop_command(error: Exception) -> None:
    """In one of fairseq's commands, print the error in one sentence and exit with status 2.

    Elsewhere it does nothing, and the caller raises.
    """
    command = os.path.basename(sys.argv[0] if sys.argv else "")
    if command.startswith("fairseq-"):
        print(f"{command}: error: {error}", file=sys.stderr)
        if threading.active_count() > 1:
            # A thread that loads batches may be in torch's C++ code. Python would end it
            # there on its way out, which aborts the process with another exit status.
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(2)
        sys.exit(2)


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


def average_no_whole_numbers() -> None:
    """Let fairseq's moving average of a model copy the whole numbers in it."""
    init = EMA.__init__
    if getattr(init, "_skips_whole_numbers", False):
        return

    @functools.wraps(init)
    def skipping(self: Any, model: nn.Module, *args: Any, **kwargs: Any) -> None:
        init(self, model, *args, **kwargs)
        whole = {name for name, value in model.state_dict().items() if _is_whole(value)}
        self.skip_keys = set(self.skip_keys or ()) | whole

    skipping._skips_whole_numbers = True  # type: ignore[attr-defined]
    EMA.__init__ = skipping


def _is_whole(value: Any) -> bool:
    return isinstance(value, Tensor) and not value.is_floating_point()


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
            raise ValueError(
                f"the checkpoint's optimizer state is for {len(saved['params'])} parameters, the "
                f"model trains {is_new.count(False)} of those in the checkpoint (--freeze-decoder "
                f"and other numbers of heads change this): continue it with --reset-optimizer, or "
                f"use --finetune-from-model instead of --restore-file"
            )
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
