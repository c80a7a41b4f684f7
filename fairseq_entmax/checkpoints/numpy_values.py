"""NumPy's numbers and arrays, such as the counts of ``--eval-bleu``, read as plain ones and lists.

NumPy's own classes trust what they are given, so they see nothing of a file but an array's bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class _Type:
    """In the place of ``numpy.dtype``."""

    def __init__(self, code: str, *_: Any) -> None:
        self.type = np.dtype(code)
        if self.type.kind not in "fiub":
            raise ValueError(f"it has an array of {self.type}")

    def __setstate__(self, state: Any) -> None:
        self.type = self.type.newbyteorder(state[1])


class _Array:
    """In the place of ``numpy.ndarray``."""

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, is_fortran, data = state
        array = np.frombuffer(data, kind.type)
        self.value = array.reshape(shape, order="F" if is_fortran else "C").tolist()


def _scalar(kind: _Type, data: bytes) -> Any:
    return np.frombuffer(data, kind.type).item()


# For torch's safe loader; releases of NumPy before 2 have no underscore
GLOBALS: list[Any] = [(_Type, "numpy.dtype"), (_Array, "numpy.ndarray")]
for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    GLOBALS += [(_scalar, f"{module}.scalar"), (lambda *_: _Array(), f"{module}._reconstruct")]


def plain(value: Any, seen: dict[int, Any] | None = None) -> Any:
    """A checkpoint with lists in the place of arrays; dicts and lists are changed themselves."""
    if isinstance(value, _Array) or not isinstance(value, dict | list | tuple):
        return value.value if isinstance(value, _Array) else value
    seen = {} if seen is None else seen  # so that what is shared is changed once, and stays shared
    if id(value) not in seen:
        seen[id(value)] = value, value
        if isinstance(value, dict):
            for key, one in value.items():
                value[key] = plain(one, seen)
        elif type(value) is list:
            value[:] = [plain(one, seen) for one in value]
        elif type(value) is tuple:
            seen[id(value)] = value, tuple(plain(one, seen) for one in value)
    return seen[id(value)][1]
