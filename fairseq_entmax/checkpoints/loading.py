"""Reading checkpoint files without running anything that they hold."""

from __future__ import annotations

import argparse
import errno
import os
import pickle
import re
import zipfile
from collections.abc import Iterator
from collections.abc import Mapping as Dictionary
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

from fairseq_entmax import compat
from fairseq_entmax.checkpoints.contents import check_contents, malformed
from fairseq_entmax.checkpoints.errors import (
    TRUST,
    NoCheckpointError,
    UnsafeCheckpointError,
    shortened,
)
from fairseq_entmax.checkpoints.pickles import check_pickles
from fairseq_entmax.checkpoints.settings import check_settings, referred


def load_checkpoint(path: str) -> dict[str, Any]:
    """Read a fairseq checkpoint to the CPU without running anything that it holds.

    Args:
        path: a file that fairseq wrote.

    Returns:
        The checkpoint as saved: ``cfg``, ``model``, ``optimizer_history`` and the rest.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not a fairseq checkpoint, or is malformed.
        UnsafeCheckpointError: it holds something that could run code, or that would fill the
            memory.
    """
    with explained(path), open(path, "rb") as file:
        state = _load(file, str(path), map_location="cpu")
    if not isinstance(state, dict) or "model" not in state:
        raise ValueError(f"{path} is not a fairseq checkpoint: it holds no 'model'")
    return state


def model_settings(state: Dictionary[str, Any], name: str) -> dict[str, Any]:
    """The options of the model that a loaded checkpoint is of.

    One that stands for another setting, ``${task.max_target_positions}``, has that one's value.

    Raises:
        ValueError: it has none, or is malformed.
    """
    cfg = state.get("cfg")
    for part, kind in (("cfg", dict), ("args", argparse.Namespace)):
        if not isinstance(state.get(part), kind | None):
            raise malformed(name, part, shortened(state[part]), "a group of settings")
    settings = cfg.get("model") if cfg is not None else state.get("args")
    if isinstance(settings, argparse.Namespace):
        settings = vars(settings)
    if isinstance(settings, dict):
        root = cfg if cfg is not None else settings
        return {option: referred(value, root)[0] for option, value in settings.items()}
    raise ValueError(f"{name} does not say what model it is of: it has neither 'cfg' nor 'args'")


class SafelyLoadingTorch(ModuleType):
    """torch, for one module, with a ``load`` that runs nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def load(file: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(file, str | os.PathLike):
            with open(file, "rb") as opened:
                return _load(opened, str(file), *args, **kwargs)
        return _load(file, str(getattr(file, "name", "the checkpoint")), *args, **kwargs)


def _load(file: Any, path: str, *args: Any, **kwargs: Any) -> Any:
    """``torch.load`` with its safe loader and the checks of this package."""
    # Also where the environment, or a torch before 2.6, would have it otherwise
    kwargs |= compat.safe_loading()
    with explained(path):
        check_pickles(file, path)
        state = torch.load(file, *args, **kwargs)
        if isinstance(state, Dictionary):
            check_settings(state, path)
            check_contents(state, path)
    return state


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turn what torch raises on a file that it cannot or will not read into one sentence.

    torch's own messages advise to turn its safe loading off, so nothing of them is left, in a
    traceback neither.
    """
    try:
        yield
    except (UnsafeCheckpointError, NoCheckpointError):
        raise
    except pickle.UnpicklingError as error:
        raise UnsafeCheckpointError(
            f"refused to load {path}: it holds more than tensors and settings, and could run code "
            f"when loaded, or it is damaged ({_reason(error)}). Nothing of it was run. {TRUST}, "
            f"or have its owner save it again"
        ) from None
    except Exception as error:
        # A file that is no checkpoint makes torch's unpickler stumble in many ways; one that is
        # cut short can make it seek to a place before its beginning
        is_of_content = isinstance(error, IsADirectoryError) or (
            getattr(error, "errno", None) == errno.EINVAL
        )
        if isinstance(error, OSError) and not is_of_content:
            raise
        raise NoCheckpointError(
            f"{path} is not a checkpoint, or is damaged: {_what_failed(error)}; take another "
            f"checkpoint of the training"
        ) from None


def _what_failed(error: BaseException) -> str:
    """The same, without what only a programmer of torch could use."""
    is_told = isinstance(error, EOFError | OSError | RuntimeError | ValueError | zipfile.BadZipFile)
    return _reason(error) if is_told else "what it holds cannot be read"


def _reason(error: BaseException) -> str:
    """What torch found in the file, without what it advises."""
    text = str(error)
    advises = "weights_only" in text or "Weights only" in text
    if not advises and not isinstance(error, pickle.UnpicklingError):
        return (text.splitlines() or [""])[0].strip()[:300] or "the file ends too early"
    for pattern in (r"GLOBAL (\S+)", r"class (\S+)", r"module (\S+) is blocked"):
        named = re.search(pattern, text)
        if named:
            return f"it names {named[1][:200]}"
    operation = re.search(r"Unsupported operand (\d+)", text)
    if operation:
        return f"it has the operation {operation[1]} of pickles"
    if not advises:
        return (text.splitlines() or [""])[0][:300]
    return "it is of an old format of torch" if "legacy" in text else "it is none of a model"
