"""Restores an optimizer's state after the model or the training has changed.

Without it: torch refuses the state if the model has gained gates or learned alphas, and a training
that is resumed with the penalty on gates added or dropped ends in an assertion of fairseq's.
Remove when: fairseq's optimizers accept a state that lacks new parameters.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fairseq.optim import FairseqOptimizer
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_entmax import command_errors, compat
from fairseq_entmax.fairseq_patches.replacing import is_ours

_REMEDY = "continue with --reset-optimizer, or use --finetune-from-model and another --save-dir"


def restore_grown_model(
    load: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any
) -> Any:
    """``Trainer.load_checkpoint`` for a model with parameters that the checkpoint lacks."""
    if not is_ours(trainer.get_model()):
        return load(trainer, *args, **kwargs)
    try:
        with restoring_grown_models():
            return load(trainer, *args, **kwargs)
    except AssertionError as error:
        with command_errors.stopping_command():
            refuse_other_training(trainer, error, *args, **kwargs)
        raise


@contextmanager
def restoring_grown_models() -> Iterator[None]:
    """Within this context, optimizers restore their state although the model gained parameters.

    These, known by :func:`fairseq_entmax.compat.is_new`, start without state."""
    load = FairseqOptimizer.load_state_dict

    def load_state_dict(self: Any, state_dict: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        with command_errors.stopping_command():
            # In place, as fairseq reads it again for --memory-efficient-fp16
            _leave_out_new_parameters(state_dict, self.param_groups)
            _check_flat_sizes(state_dict, self.param_groups)
        load(self, state_dict, *args, **kwargs)

    FairseqOptimizer.load_state_dict = load_state_dict
    try:
        yield
    finally:
        FairseqOptimizer.load_state_dict = load


def _leave_out_new_parameters(state_dict: dict[str, Any], groups: list[dict[str, Any]]) -> None:
    """Renumber the parameters in an optimizer's state, in place, around the new ones."""
    saved_groups = state_dict.get("param_groups") or []
    if len(saved_groups) != len(groups):
        return
    renumbered: dict[int, int] = {}
    new_groups = []
    numbers = itertools.count()
    for saved, group in zip(saved_groups, groups, strict=True):
        is_new = {next(numbers): compat.is_new(parameter) for parameter in group["params"]}
        old = [number for number, new in is_new.items() if not new]
        if len(saved["params"]) != len(old):
            raise ValueError(
                f"the checkpoint's optimizer state is for {len(saved['params'])} parameters, but the "
                f"model trains {len(old)} of those in the checkpoint (--freeze-decoder and other "
                f"numbers of heads change this): {_REMEDY}"
            )
        renumbered |= dict(zip(saved["params"], old, strict=True))
        new_groups.append({**saved, "params": list(is_new)})
    state = {renumbered.get(key, key): value for key, value in state_dict["state"].items()}
    state_dict.update(state=state, param_groups=new_groups)


def _check_flat_sizes(state_dict: dict[str, Any], groups: list[dict[str, Any]]) -> None:
    """Raise ValueError for state of another size, which torch would accept, to fail a step later:
    the one flat tensor of ``--fp16`` and ``--bf16`` has no room for the state of new parameters."""
    parameters = [parameter for group in groups for parameter in group["params"]]
    for position, parameter in enumerate(parameters):
        for value in state_dict.get("state", {}).get(position, {}).values():
            is_flat = isinstance(value, Tensor) and value.dim() == 1 == parameter.dim()
            if is_flat and value.numel() != parameter.numel():
                raise ValueError(
                    f"the checkpoint's optimizer state is for {value.numel()} parameters, but the "
                    f"model has {parameter.numel()}: {_REMEDY}"
                )


def refuse_other_training(
    trainer: Trainer, error: AssertionError, filename: str = "the checkpoint", *_: Any, **__: Any
) -> None:
    """Explain fairseq's assertion on a checkpoint of another criterion or optimizer."""
    last = trainer._optim_history[-1] if trainer._optim_history else {}
    present = {"criterion": trainer.get_criterion(), "optimizer": trainer.optimizer}
    for name, part in present.items():
        theirs = last.get(f"{name}_name")
        if theirs != type(part).__name__:
            raise ValueError(
                f"{filename} was trained with the {name} {theirs}, and this training has "
                f"{type(part).__name__}, so its optimizer state does not fit: {_REMEDY}"
            ) from error
