"""Names and tokens beside figures, as expressions of Vega, and numbers for people."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

# Pixels: a letter of a panel's title, on average
_LETTER = 7.2


def lines_of(name: str, length: float) -> list[str]:
    """A name, such as ``entmax:tv=learned+softmax``, in lines that are no longer than so many
    pixels, ten letters at least, broken behind signs such as ``+``."""
    most = max(10, int(length / _LETTER))
    lines = [""]
    for part in re.findall(r"[^-_+:=./,; ]*[-_+:=./,; ]?", name):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > most:
            lines.append("")
        lines[-1] += part
        while len(lines[-1]) > most and len(lines[-1].rstrip()) > most:
            lines[-1:] = [lines[-1][:most], lines[-1][most:]]
    return [line.strip() for line in lines if line.strip()] or [name]


def expression_of(value: str | Sequence[Any]) -> str:
    """Strings, in lists or alone, as an expression of Vega: as JSON, but for the string "if", which
    Vega 6 takes for its function where it is no key."""
    if isinstance(value, str):
        return '"i"+"f"' if value == "if" else json.dumps(value)
    return f"[{', '.join(map(expression_of, value))}]"


def in_lines(names: Sequence[str], length: float) -> str:
    """The ``labelExpr`` of a header whose names are broken into lines."""
    entries = (f"{json.dumps(name)}: {expression_of(lines_of(name, length))}" for name in names)
    return f"({{{', '.join(entries)}}})[datum.value]"


def in_places(tokens: Sequence[str]) -> str:
    """The ``labelExpr`` of an axis with a token in the middle of each unit."""
    # SentencePiece's mark of a word's start is in few fonts
    return f"{expression_of([token.replace('▁', '_') for token in tokens])}[floor(datum.value)]"


def decimal(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals, a dash for none; only 0 and 1 read 0 and 1, as on the page."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    unit = 10**-digits
    if value < 1 and float(text) == 1:
        return f">{1 - unit:.{digits}f}"
    if value != 0 and float(text) == 0:
        return f"<{unit:.{digits}f}" if value > 0 else f">−{unit:.{digits}f}"
    return text.replace("-", "−") if float(text) else text.removeprefix("-")
