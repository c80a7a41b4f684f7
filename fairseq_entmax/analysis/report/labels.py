"""Names and tokens beside figures, as expressions of Vega."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

# Pixels: a letter of a panel's title, on average
LETTER = 7.2


def lines_of(name: str, length: float, letter: float = LETTER) -> list[str]:
    """A name in lines that are no longer than so many pixels, broken behind signs such as ``+``.

    Args:
        name: of a model, such as ``entmax:tv=learned+softmax``.
        length: in pixels; ten letters have room whatever it is.
        letter: the width of a letter in pixels.
    """
    most = max(10, int(length / letter))
    lines = [""]
    for part in re.findall(r"[^-_+:=./,; ]*[-_+:=./,; ]?", name):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > most:
            lines.append("")
        lines[-1] += part
        while len(lines[-1]) > most and len(lines[-1].rstrip()) > most:
            lines[-1:] = [lines[-1][:most], lines[-1][most:]]
    return [line.strip() for line in lines if line.strip()] or [name]


def expression_of(value: str | Sequence[Any] | Mapping[str, Any]) -> str:
    """Strings, in lists and objects or alone, as an expression of Vega.

    As JSON, but for the string "if": Vega 6 takes it for its function, and then
    looks for a signal of that name. As a key it does not.
    """
    if isinstance(value, str):
        return '"i"+"f"' if value == "if" else json.dumps(value)
    if isinstance(value, Mapping):
        entries = (f"{json.dumps(key)}: {expression_of(one)}" for key, one in value.items())
        return f"{{{', '.join(entries)}}}"
    return f"[{', '.join(map(expression_of, value))}]"


def in_lines(names: Sequence[str], length: float) -> str:
    """The ``labelExpr`` of a header whose names are broken into lines."""
    return f"({expression_of({name: lines_of(name, length) for name in names})})[datum.value]"


def in_places(tokens: Sequence[str]) -> str:
    """The ``labelExpr`` of an axis with a token in the middle of each unit."""
    return f"{expression_of([printed(token) for token in tokens])}[floor(datum.value)]"


def printed(token: str) -> str:
    """A token as figures write it: SentencePiece's mark of a word's start is in few fonts."""
    return token.replace("▁", "_")
