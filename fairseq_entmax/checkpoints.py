"""Loading checkpoints without running anything that they hold.

A checkpoint can bring code in two ways: as a pickle, which torch's safe loader refuses, and
as the text of a setting that fairseq hands to Python's ``eval`` when it builds the model.
Both are refused here, whatever model the checkpoint says it is of.
"""

from __future__ import annotations

import argparse
import ast
import errno
import functools
import pickle
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from fairseq_entmax import compat as compat  # first, for its message where there is no fairseq

from fairseq import checkpoint_utils  # isort: skip

# Settings that fairseq evaluates, of all its models and optimisers
EVALUATED = (
    *("adaptive_softmax_cutoff", "adaptive_input_cutoff", "character_filters"),
    *("conv_feature_layers", "conv_aggregator_layers", "override_encoder_layers"),
    *("encoder_layers", "decoder_layers", "encoder_attention", "decoder_attention"),
    *("self_attention", "project_input", "gated_attention", "downsample", "pretrained"),
    *("adam_betas", "adamax_betas", "lamb_betas", "adafactor_eps", "wer_args"),
    *("xformers_att_config", "feature_encoder_spec"),
)
# What such a setting may consist of: numbers and texts in lists, added and multiplied
HARMLESS = (
    *(ast.Expression, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Load),
    *(ast.UnaryOp, ast.USub, ast.UAdd, ast.BinOp, ast.Add, ast.Sub, ast.Mult),
)


class UnsafeCheckpointError(RuntimeError):
    """A checkpoint holds something that could run code, and was not loaded."""


def allow_fairseq_checkpoints() -> None:
    """Let torch's safe loading (the default from torch 2.6) read fairseq's checkpoints.

    The one class in them beyond tensors and plain containers is ``argparse.Namespace``,
    which holds settings and runs no code.
    """
    add_safe_globals = getattr(torch.serialization, "add_safe_globals", None)
    if add_safe_globals is not None:
        add_safe_globals([argparse.Namespace])


def refuse_unsafe_checkpoints() -> None:
    """Make fairseq refuse checkpoints with evaluated code, and say so plainly of pickled code.

    torch's own message advises to turn its safe loading off.
    """
    load = checkpoint_utils.load_checkpoint_to_cpu
    if getattr(load, "_refuses_unsafe", False):
        return

    @functools.wraps(load)
    def load_safely(path: str, *args: Any, **kwargs: Any) -> Any:
        with _Explained(path):
            state = load(path, *args, **kwargs)
        check_settings(state, path)
        return state

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
        UnsafeCheckpointError: it holds something that could run code.
    """
    allow_fairseq_checkpoints()
    with _Explained(path):
        state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or "model" not in state:
        raise ValueError(f"{path} is not a fairseq checkpoint: it holds no 'model'")
    check_settings(state, path)
    return state


def model_settings(state: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The options of the model that a loaded checkpoint is of.

    Raises:
        ValueError: it has none.
    """
    cfg = state.get("cfg")
    settings = cfg.get("model") if cfg is not None else state.get("args")
    if isinstance(settings, argparse.Namespace):
        return dict(vars(settings))
    if isinstance(settings, dict):
        return dict(settings)
    raise ValueError(f"{name} does not say what model it is of: it has neither 'cfg' nor 'args'")


def check_settings(state: Mapping[str, Any], path: str) -> None:
    """Refuse settings that fairseq would evaluate and that are more than plain values.

    Raises:
        UnsafeCheckpointError: names the setting and its value.
    """
    for part in ("cfg", "args"):
        for name, text in _texts(state.get(part)):
            if name.endswith(EVALUATED) and not _is_harmless(text):
                raise UnsafeCheckpointError(
                    f"refused to load {path}: fairseq would run its setting {name} = {text!r} as "
                    f"code. Nothing of it was run. Get the checkpoint from a source that you trust"
                )


def _texts(settings: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text among nested settings, with the name of its innermost setting."""
    if isinstance(settings, argparse.Namespace):
        settings = vars(settings)
    if isinstance(settings, str):
        yield name, settings
    elif isinstance(settings, Mapping):
        for key, value in settings.items():
            yield from _texts(value, str(key))


def _is_harmless(text: str) -> bool:
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError):
        return True  # and fairseq's eval cannot run it either
    return all(isinstance(node, HARMLESS) for node in ast.walk(tree)) or text.isidentifier()


class _Explained:
    """Turns what torch raises on a file that it cannot or will not read into one sentence."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, pickle.UnpicklingError):
            lines = str(error).splitlines() or [""]
            reason = next((n for n in lines if "Unsupported" in n or "global" in n), lines[0])
            raise UnsafeCheckpointError(
                f"refused to load {self.path}: it holds more than tensors and settings, and could "
                f"run code when loaded, or it is damaged ({reason.strip()}). Nothing of it was "
                f"run. Get the checkpoint from a source that you trust, or have its owner save it "
                f"again"
            ) from None
        # A file that is no checkpoint makes torch's unpickler stumble in many ways; one that is
        # cut short can make it seek to a place before its beginning
        kinds = RuntimeError | EOFError | LookupError | ValueError | IsADirectoryError
        if isinstance(error, kinds) or getattr(error, "errno", None) == errno.EINVAL:
            reason = (str(error).splitlines() or [""])[0] or "the file ends too early"
            raise ValueError(
                f"{self.path} is not a checkpoint, or is damaged: {type(error).__name__}: {reason}"
            ) from error
