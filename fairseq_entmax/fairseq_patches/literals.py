"""Restricts what fairseq hands to Python's ``eval`` to plain values.

fairseq reads some of its settings, such as ``(0.9, 0.98)`` and ``[(512, 3)] * 20``, with ``eval``,
in many places, which differ between its releases. Checkpoints contain such settings. So fairseq's
modules get their own ``eval``, which reads plain values and runs nothing.

Without it: in many places, fairseq runs the texts of settings in a checkpoint as code.
Remove when: fairseq reads such settings by ``ast.literal_eval``.
"""

import ast
import importlib.abc
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from fairseq_entmax import command_errors

# Their modules read plain values instead of evaluating code
PACKAGES = ("fairseq", "fairseq_cli")
# Called with each module of theirs that is imported
AFTER_IMPORT: list[Callable[[ModuleType], None]] = []
_PLAIN = (
    *(ast.Expression, ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Load),
    *(ast.UnaryOp, ast.UAdd, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div),
)


def read_literal(text: Any, *scopes: Any) -> Any:
    """The value that Python's ``eval`` gives for a text, which may hold only plain values."""
    if not isinstance(text, str):
        raise TypeError("eval() arg 1 must be a string")
    try:
        tree = ast.parse(text.lstrip(" \t"), mode="eval")
        if all(isinstance(node, _PLAIN) for node in ast.walk(tree)):
            # The tree has no name, no attribute and no call, so nothing can run
            return eval(compile(tree, "<setting>", "eval"), {"__builtins__": {}})
    except (ValueError, SyntaxError, TypeError, ArithmeticError, MemoryError, RecursionError):
        pass
    raise ValueError(
        f"{text[:80]!r} is not a plain value: here, fairseq may read only numbers, texts, and "
        f"lists of them such as 10000,20000 or [(512, 3)] * 20"
    )


def restrict_eval() -> None:
    """Shadow ``eval`` by :func:`evaluate` in every module of fairseq, imported already or later."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in PACKAGES and module is not None:
            _shadow_eval(module)
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def evaluate(text: Any, *scopes: Any) -> Any:
    """:func:`read_literal`, but its error ends a command of fairseq's with one sentence."""
    with command_errors.stopping_command():
        return read_literal(text, *scopes)


def _shadow_eval(module: ModuleType) -> None:
    vars(module).setdefault("eval", evaluate)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds fairseq's modules as Python does, and shadows ``eval`` before a module runs."""

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
            for change in AFTER_IMPORT:
                change(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
