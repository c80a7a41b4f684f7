"""What a name in a pickle stands for when the pickle is only looked through.

Tensors and their storages get stand-ins, after a look at what they are made of; plain values are
made. A name that is not in :data:`NAMED` is not in the checkpoint of a model.
"""

from __future__ import annotations

import pickle
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

MOST_DIMENSIONS = 64

_STORAGES = {
    **{"Double": 8, "Float": 4, "Half": 2, "BFloat16": 2, "ComplexDouble": 16, "ComplexFloat": 8},
    **{"Long": 8, "Int": 4, "Short": 2, "Char": 1, "Byte": 1, "Bool": 1, "Untyped": 1},
}


@dataclass(frozen=True)
class Named:
    """What a name in a pickle stands for: a type of storage, a function or another type."""

    name: str
    bytes_of_one: int = 0
    make: Callable[..., Any] | None = None


class StandIn:
    """In the place of a tensor or a storage."""


def expect(is_so: bool) -> None:
    if not is_so:
        raise pickle.UnpicklingError("it makes more than tensors and plain values")


def _are_numbers(numbers: Any) -> bool:
    return (
        type(numbers) is tuple
        and len(numbers) <= MOST_DIMENSIONS
        and all(type(number) is int and number >= 0 for number in numbers)
    )


def _tensor(storage: Any, offset: Any, size: Any, stride: Any, *others: Any) -> StandIn:
    expect(type(storage) is StandIn and _are_numbers((offset,)))
    expect(_are_numbers(size) and _are_numbers(stride))
    if others:
        requires_grad, hooks = others
        expect(type(requires_grad) is bool and type(hooks) is OrderedDict and not hooks)
    return StandIn()


def _parameter(tensor: Any, requires_grad: Any, hooks: Any) -> StandIn:
    expect(type(tensor) is StandIn and type(requires_grad) is bool)
    expect(type(hooks) is OrderedDict and not hooks)
    return StandIn()


def _bytes(text: Any, encoding: Any) -> bytes:
    expect(type(text) is str and encoding == "latin1")
    return text.encode("latin1")


def _size(numbers: Any) -> StandIn:
    expect(_are_numbers(numbers))
    return StandIn()


def _device(*names: Any) -> StandIn:
    expect(all(type(name) in (str, int) for name in names))
    return StandIn()


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_parameter": _parameter,
    "torch.Size": _size,
    "torch.device": _device,
    "collections.OrderedDict": lambda: OrderedDict(),
    "_codecs.encode": _bytes,
}
NAMED = {
    **{name: Named(name, make=make) for name, make in _FUNCTIONS.items()},
    **{f"torch.{name}Storage": Named(name, size) for name, size in _STORAGES.items()},
    "torch.storage.UntypedStorage": Named("Untyped", 1),
    "argparse.Namespace": Named("Namespace"),
    **{
        f"torch.{name}": Named(name)
        for name, value in vars(torch).items()
        if isinstance(value, torch.dtype)
    },
}
