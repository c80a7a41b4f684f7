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
    """Keeps the first input and the output of modules, of their last call, on one sentence."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._modules = list(modules)
        self._hooks: list[Any] = []
        self._seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def __enter__(self) -> Activations:
        self._hooks = [module.register_forward_hook(self._see) for module in self._modules]
        return self

    def __exit__(self, *error: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _see(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        self._seen[module] = args[0], output

    def input(self, module: nn.Module) -> Tensor:
        """What the module took, without the dimension of sentences; float32, or float64 if it was."""
        return wide(self._seen[module][0]).flatten(0, 1)

    def output(self, module: nn.Module) -> Tensor:
        """What the module gave, likewise."""
        return wide(self._seen[module][1]).flatten(0, 1)
