"""What must behave differently when torch records operations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def is_recorded() -> bool:
    """Whether operations are traced or compiled, and so must work for other numbers too."""
    return torch.compiler.is_compiling() or torch.jit.is_tracing()


def refuse_export() -> None:
    """Raise RuntimeError in an export to ONNX, which would otherwise fail without saying why."""
    if is_recorded() and torch.onnx.is_in_onnx_export():
        raise RuntimeError(
            "ONNX has no alpha-entmax: call model.prepare_for_onnx_export_() before "
            "torch.onnx.export, or export fairseq_entmax.attention.scriptable(module) instead of a module"
        )


def outside_graphs(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that ``torch.compile`` breaks its graph around it.

    ``torch.compiler.disable`` is only called when needed, as it imports the whole compiler.
    """

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.compiler.is_compiling():
            eager: Callable[P, R] = torch.compiler.disable(function)
            return eager(*args, **kwargs)
        return function(*args, **kwargs)

    return run
