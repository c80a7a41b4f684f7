"""Replacing functions of fairseq."""

import functools
import importlib
import inspect
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import ModuleType
from typing import Any

from torch import nn

from fairseq_entmax.attention import MultiheadAttention


def replace(owner: Any, name: str, *changes: Callable[..., Any]) -> None:
    """Make a function of fairseq run ``changes``; a second call has no effect.

    Each change gets the next one as its first argument, and the last one gets fairseq's function.
    """
    original = getattr(owner, name)
    if hasattr(original, "_is_changed"):
        return
    run = original
    for change in reversed(changes):
        run = functools.partial(change, run)

    @functools.wraps(original)
    def changed(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)

    vars(changed)["_is_changed"] = True
    setattr(owner, name, changed)
    # The names that the module's own functions see, if they are not its own: in a process started by
    # python -m fairseq_cli.train, __main__ is a copy
    if isinstance(owner, ModuleType):
        inspect.unwrap(original).__globals__[name] = changed


def replace_in(modules: Iterable[str], name: str, value: Any) -> None:
    """Give a name in modules of fairseq another value, if they can be imported here."""
    for module in modules:
        with suppress(ImportError):
            vars(importlib.import_module(module))[name] = value


def is_ours(model: nn.Module) -> bool:
    """Whether a model has attention of this package, and so is one of its models."""
    return any(isinstance(module, MultiheadAttention) for module in model.modules())
