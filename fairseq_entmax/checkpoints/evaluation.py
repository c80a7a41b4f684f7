"""fairseq's modules read plain values where they would run a text as code.

The settings in a checkpoint are such texts: ``(0.9, 0.98)``.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from fairseq_entmax import compat
from fairseq_entmax.checkpoints.literals import read_literal

# Whose modules read plain values instead of evaluating
PACKAGES = ("fairseq", "fairseq_cli")


def evaluate_nothing_in_fairseq() -> None:
    """Give every module of fairseq, imported or yet to be, :func:`evaluate` as ``eval``.

    A name in a module comes before the built-in of that name, so nothing of fairseq is
    rewritten, and code outside fairseq keeps Python's ``eval``. Without it the texts of settings
    in a checkpoint, such as ``(0.9, 0.98)``, are run as code at many places of fairseq.
    """
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES and module is not None:
            _shadow_eval(module)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def evaluate(text: Any, *scopes: Any) -> Any:
    """:func:`read_literal`, whose error ends one of fairseq's commands in its one sentence."""
    with compat.stopping_command():
        return read_literal(text, *scopes)


def _shadow_eval(module: ModuleType) -> None:
    vars(module).setdefault("eval", evaluate)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds fairseq's modules as Python does, and shadows ``eval`` before one is run."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in PACKAGES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        loader: Any = spec and spec.loader
        if not isinstance(loader, importlib.abc.Loader):
            return None
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            _shadow_eval(module)
            run(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
