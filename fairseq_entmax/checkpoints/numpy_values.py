"""NumPy's numbers and arrays, such as the counts of ``--eval-bleu``, read as plain ones and lists.

NumPy's own classes trust what they are given, so they see nothing of a file but an array's bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class _Type:
    """In the place of ``numpy.dtype``."""

    def __init__(self, code: str, *_: Any) -> None:
        self._type = np.dtype(code)
        if self._type.kind not in "fiub":
            raise ValueError(f"it has an array of {self._type}")

    def __setstate__(self, state: Any) -> None:
        self._type = self._type.newbyteorder(state[1])

    def read(self, data: bytes) -> Any:
        return np.frombuffer(data, self._type)


class _Array:
    """In the place of ``numpy.ndarray``."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, data = state
        self.value = kind.read(data).reshape(shape, order="F" if is_fortran else "C").tolist()


def _scalar(kind: _Type, data: bytes) -> Any:
    return kind.read(data).item()


# For torch's safe loader; releases of NumPy before 2 have no underscore
GLOBALS: list[Any] = [(_Type, "numpy.dtype"), (_Array, "numpy.ndarray")]
for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    GLOBALS += [(_scalar, f"{module}.scalar"), (lambda *_: _Array(), f"{module}._reconstruct")]


def plain(value: Any) -> Any:
    """A checkpoint with lists in the place of arrays; dicts and lists are changed themselves."""
    if isinstance(value, dict):
        value.update({key: plain(one) for key, one in value.items()})
    elif type(value) is list:
        value[:] = map(plain, value)
    elif type(value) is tuple:
        return tuple(map(plain, value))
    return value.value if isinstance(value, _Array) else value
