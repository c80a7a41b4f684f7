"""Reading checkpoint files without running anything in them."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping as Dictionary
from types import ModuleType
from typing import Any

import torch

from fairseq_entmax.checkpoints import numpy_values
from fairseq_entmax.checkpoints.settings import TRUST, UnsafeCheckpointError, check_settings

# The only class in fairseq's checkpoints besides tensors, numbers and plain containers
torch.serialization.add_safe_globals([argparse.Namespace])


def load_checkpoint(path: str) -> dict[str, Any]:
    """Load a checkpoint as fairseq saved it, to the CPU, without running anything in it.

    Raises:
        FileNotFoundError: there is no such file.
        UnsafeCheckpointError: torch did not save the file, or it is damaged, or holds something
            that could run code.
        ValueError: it is not a fairseq checkpoint.
    """
    state = SafelyLoadingTorch.load(path, map_location="cpu")
    if not isinstance(state, dict) or not isinstance(state.get("model"), Dictionary):
        raise ValueError(f"{path} is not a fairseq checkpoint: it contains no 'model'")
    return state


def updates_of(state: Dictionary[str, Any]) -> int | None:
    """The number of updates that a checkpoint was trained for; None if it does not say."""
    history = state.get("optimizer_history") or [{}]
    number: int | None = history[-1].get("num_updates")
    return number


class SafelyLoadingTorch(ModuleType):
    """A stand-in for torch in one module, with a ``load`` that runs nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def load(file: Any, *args: Any, **kwargs: Any) -> Any:
        """``torch.load`` with its safe loader, even if the environment turns that off."""
        path = file if isinstance(file, str | os.PathLike) else getattr(file, "name", "the file")
        try:
            with torch.serialization.safe_globals(numpy_values.GLOBALS):
                state = torch.load(file, *args, **{**kwargs, "weights_only": True})
            state = numpy_values.plain(state)
        except Exception as error:
            # torch fails in many ways on a file that is no checkpoint. If a file is missing or
            # may not be read, the error has its name
            if isinstance(error, OSError) and error.filename is not None:
                raise
            raise UnsafeCheckpointError(
                f"refused to load {path}: it is not a checkpoint, is damaged, or contains more than "
                f"tensors and settings, which could run code ({_reason(error)}). {TRUST}"
            ) from None
        if isinstance(state, dict):
            check_settings(state, str(path))
        return state


def _reason(error: Exception) -> str:
    """What torch found in the file, in one line, without its advice to turn safe loading off."""
    text = str(error)
    named = re.search(r"GLOBAL (\S+)", text)
    if named:
        return f"it names {named[1][:200]}"
    if "weights_only" in text or "Weights only" in text:
        return "torch's safe loader cannot read it"
    return " ".join(text.split())[:200] or "it ends too early"
