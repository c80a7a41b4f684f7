"""NumPy's numbers and arrays in a checkpoint, read as plain numbers and lists.

fairseq stores some scores and counts so, such as those of ``--eval-bleu``. NumPy itself sees
nothing of the file but the bytes of an array, as its own classes trust what they are given.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class _Type:
    """In the place of ``numpy.dtype``."""

    def __init__(self, code: str, *_: Any) -> None:
        self._type = np.dtype(code if isinstance(code, str) else "O")
        if self._type.kind not in "fiub":
            raise ValueError(f"it has an array of {self._type}")

    def __setstate__(self, state: Any) -> None:
        if state[1] == ">":
            raise ValueError("it has an array of big-endian numbers")

    def read(self, data: bytes) -> Any:
        return np.frombuffer(data, self._type)


class _Array:
    """In the place of ``numpy.ndarray``."""

    value: Any = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, data = state
        self.value = kind.read(data).reshape(shape, order="F" if is_fortran else "C").tolist()


def _scalar(kind: _Type, data: bytes) -> Any:
    return kind.read(data).item()


def _array(*_: Any) -> _Array:
    return _Array()


# For torch's safe loader; releases of NumPy before 2 have no underscore
GLOBALS: list[Any] = [(_Type, "numpy.dtype"), (_Array, "numpy.ndarray")]
for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    GLOBALS += [(_scalar, f"{module}.scalar"), (_array, f"{module}._reconstruct")]


def plain(value: Any) -> Any:
    """A checkpoint with lists in the place of arrays; dicts and lists are changed themselves."""
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, dict):
        value.update({key: plain(one) for key, one in value.items()})
    elif type(value) is list:
        value[:] = map(plain, value)
    elif type(value) is tuple:
        return tuple(map(plain, value))
    return value
