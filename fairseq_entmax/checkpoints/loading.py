"""Reading checkpoint files without running anything that they hold."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping as Dictionary
from types import ModuleType
from typing import Any

import torch

from fairseq_entmax.checkpoints.settings import TRUST, UnsafeCheckpointError, check_settings

# Beyond tensors and plain containers, the one class in fairseq's checkpoints
torch.serialization.add_safe_globals([argparse.Namespace])


def load_checkpoint(path: str) -> dict[str, Any]:
    """A checkpoint as fairseq saved it, read to the CPU without running anything that it holds.

    Raises:
        FileNotFoundError: there is no such file.
        UnsafeCheckpointError: it is no file of torch's, is damaged, or holds something that could
            run code.
        ValueError: it is not a fairseq checkpoint.
    """
    state = SafelyLoadingTorch.load(path, map_location="cpu")
    if not isinstance(state, dict) or not isinstance(state.get("model"), Dictionary):
        raise ValueError(f"{path} is not a fairseq checkpoint: it holds no 'model'")
    return state


def updates_of(state: Dictionary[str, Any]) -> int | None:
    """For how many updates a checkpoint was trained; None where it does not say."""
    history = state.get("optimizer_history") or [{}]
    number: int | None = history[-1].get("num_updates")
    return number


class SafelyLoadingTorch(ModuleType):
    """torch, for one module, with a ``load`` that runs nothing."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def load(file: Any, *args: Any, **kwargs: Any) -> Any:
        """``torch.load`` with its safe loader, also where the environment would have it otherwise."""
        path = file if isinstance(file, str | os.PathLike) else getattr(file, "name", "the file")
        try:
            state = torch.load(file, *args, **{**kwargs, "weights_only": True})
        except Exception as error:
            # A file that is no checkpoint makes torch stumble in many ways; a file that is not
            # there, or may not be read, has its name in the error
            if isinstance(error, OSError) and error.filename is not None:
                raise
            raise UnsafeCheckpointError(
                f"refused to load {path}: it is no checkpoint, is damaged, or holds more than "
                f"tensors and settings, which could run code ({_reason(error)}). {TRUST}"
            ) from None
        if isinstance(state, dict):
            check_settings(state, str(path))
        return state


def _reason(error: Exception) -> str:
    """What torch found in the file, in one line, without its advice to switch safe loading off."""
    text = str(error)
    named = re.search(r"GLOBAL (\S+)", text)
    if named:
        return f"it names {named[1][:200]}"
    if "weights_only" in text or "Weights only" in text:
        return "torch's safe loader does not read it"
    return " ".join(text.split())[:200] or "it ends too early"
