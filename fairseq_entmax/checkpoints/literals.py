"""Plain values in texts that fairseq hands to Python's ``eval``.

fairseq reads some of its settings, such as ``(0.9, 0.98)`` and ``[(512, 3)] * 20``, with
``eval``: in three functions of ``fairseq.utils``, and at many places of its models, tasks,
criterions and optimisers, which differ between its releases. A checkpoint brings such settings
along. So fairseq's modules get an ``eval`` of their own, which reads plain values and runs
nothing: :func:`read_literal`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from fairseq_entmax.checkpoints.errors import shortened

LONGEST_TEXT = 10_000  # characters
LONGEST_LIST = 4096  # entries

_NUMBERS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def read_literal(text: Any, *scopes: Any) -> Any:
    """The value of a text, as Python's ``eval`` gives it, where the text is a plain value.

    Plain values are numbers, texts, True, False, None, and tuples, lists and dictionaries of
    them; numbers may be added, subtracted, multiplied and divided, lists added and repeated.

    Args:
        text: at most :data:`LONGEST_TEXT` characters, taken exactly as ``eval`` takes them.
        scopes: what ``eval`` takes for names; not looked at, as names are not read.

    Raises:
        TypeError: ``text`` is no text, nor bytes; so does ``eval``.
        ValueError: it is anything but a plain value, or too long.
    """
    if isinstance(text, bytes | bytearray):
        raise ValueError(f"{shortened(text)} is of bytes, where a text with a plain value belongs")
    if not isinstance(text, str):
        raise TypeError("eval() arg 1 must be a string")
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"{shortened(text)} is too long for a value: {LONGEST_TEXT} at most")
    try:
        return _value(ast.parse(text.lstrip(" \t"), mode="eval").body)
    except (ValueError, SyntaxError, TypeError, ArithmeticError, MemoryError, RecursionError):
        raise ValueError(
            f"{shortened(text)} is not a plain value, which is all that fairseq may read from a "
            f"text here: numbers, texts, and lists of them such as 10000,20000 or [(512, 3)] * 20"
        ) from None


def _value(node: ast.expr) -> Any:
    """The value of a part of a parsed text."""
    if isinstance(node, ast.Constant) and not isinstance(node.value, bytes | type(...)):
        return node.value
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    if isinstance(node, ast.List):
        return list(map(_value, node.elts))
    if isinstance(node, ast.Dict):
        keys = [_value(key) for key in node.keys if key is not None]
        return dict(zip(keys, map(_value, node.values), strict=True))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        operand = _value(node.operand)
        if _is_number(operand):
            return -operand if isinstance(node.op, ast.USub) else operand
    if isinstance(node, ast.BinOp) and type(node.op) in _NUMBERS:
        return _combined(type(node.op), _value(node.left), _value(node.right))
    raise ValueError("not a plain value")


def _combined(operation: type[ast.operator], left: Any, right: Any) -> Any:
    """Two numbers, two lists, or a list and how often it is repeated."""
    if _is_number(left) and _is_number(right):
        return _NUMBERS[operation](left, right)
    if operation is ast.Add and type(left) is type(right) and isinstance(left, list | tuple):
        length = len(left) + len(right)
    elif operation is ast.Mult and isinstance(left, list | tuple) and _is_count(right):
        length = len(left) * right
    elif operation is ast.Mult and _is_count(left) and isinstance(right, list | tuple):
        length = left * len(right)
    else:
        raise ValueError("not a plain value")
    if length > LONGEST_LIST:
        raise ValueError("too long a list")
    return _NUMBERS[operation](left, right)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
