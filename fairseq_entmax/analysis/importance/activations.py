"""What a model's modules take and give in a pass, seen from outside."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


@contextlib.contextmanager
def restored(things: Iterable[Any], attribute: str) -> Iterator[None]:
    """Whatever a block sets an attribute of things to, afterwards each has the one it had."""
    before = [(thing, getattr(thing, attribute)) for thing in things]
    try:
        yield
    finally:
        for thing, value in before:
            setattr(thing, attribute, value)


def wide(tensor: Tensor) -> Tensor:
    """The tensor without gradient, in float32; in float64 if it is."""
    return tensor.detach().to(torch.promote_types(tensor.dtype, torch.float32))


class Activations:
    """Keeps the first input and the output of modules, of their last call.

    A context manager: it watches within its block, and what it saw can be asked for afterwards.

    Args:
        modules: the modules to watch.
    """

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._modules = list(modules)
        self._hooks: list[Any] = []
        self._inputs: dict[nn.Module, Tensor] = {}
        self._outputs: dict[nn.Module, Tensor] = {}

    def __enter__(self) -> Activations:
        self._hooks = [module.register_forward_hook(self._see) for module in self._modules]
        return self

    def __exit__(self, *error: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _see(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        self._inputs[module], self._outputs[module] = args[0], output

    def input(self, module: nn.Module) -> Tensor:
        """What the module took, in float32 (float64 if it was)."""
        return wide(self._inputs[module])

    def output(self, module: nn.Module) -> Tensor:
        """What the module gave, in float32 (float64 if it was)."""
        return wide(self._outputs[module])
