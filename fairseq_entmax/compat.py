"""Small helpers around fairseq and torch, and the place for what differs between their releases.

Importing this module needs fairseq and changes nothing in it. It silences warnings that users of
fairseq cannot act on (:mod:`fairseq_entmax.warning_filters`).
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
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
    return bool(nn.modules.module._has_any_global_hook())


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


# The exit status of a command that ended with an error in one sentence
STOPPED = 2
# Seconds that the first of several processes has to print the error for all
TIME_OF_FIRST = 5.0


def stop_command(error: Exception) -> None:
    """In one of fairseq's commands, print the error in one sentence and exit with status 2.

    Of several processes that train together the first prints it; the others wait for their launcher
    to end them. Outside fairseq's commands this does nothing, and the caller raises.
    """
    command = running_command()
    if not command:
        return
    if _rank() > 0:
        time.sleep(TIME_OF_FIRST)
    print(f"{command}: error: {error}", file=sys.stderr)
    if threading.active_count() > 1 or multiprocessing.active_children() or _are_several():
        # A thread that loads batches may be in torch's C++ code. Python would end it there at
        # exit, which aborts the process with another exit status; and processes that train
        # together would wait for each other.
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        with suppress(ValueError):  # raised outside the main thread
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's raises when a worker ends
        for worker in multiprocessing.active_children():  # which would print a traceback
            worker.kill()
        os._exit(STOPPED)
    sys.exit(STOPPED)


def running_command() -> str:
    """The name of the running fairseq command, also as ``python -m fairseq_cli.train``; or ''."""
    folder, name = os.path.split(os.path.abspath(sys.argv[0] if sys.argv else ""))
    if name.startswith("fairseq-") and name != "fairseq-entmax":  # which reports errors itself
        return name
    if os.path.basename(folder) == "fairseq_cli":
        return f"fairseq-{os.path.splitext(name)[0].replace('_', '-')}"
    return ""


def _rank() -> int:
    """The number of this process among those that train together; 0 is the first or only one."""
    if _are_several():
        return torch.distributed.get_rank()
    rank = os.environ.get("RANK", "") if "TORCHELASTIC_RUN_ID" in os.environ else ""
    return int(rank) if rank.isdecimal() else 0


def _are_several() -> bool:
    """Whether this process has joined others to train together."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


@contextmanager
def stopping_command() -> Iterator[None]:
    """Call :func:`stop_command` on a ``ValueError`` in the block, then raise it again."""
    try:
        yield
    except ValueError as error:
        stop_command(error)
        raise


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
