"""Labels of figures as Vega expressions, and numbers formatted for display."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

# The average width of a letter in a panel's title, in pixels
_LETTER = 7.2


def lines_of(name: str, length: float) -> list[str]:
    """Break a name, such as ``entmax:tv=learned+softmax``, into lines of at most ``length`` pixels
    (but at least ten letters), if possible after signs such as ``+``."""
    most = max(10, int(length / _LETTER))
    lines = [""]
    for part in re.findall(r"[^-_+:=./,; ]*[-_+:=./,; ]?", name):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > most:
            lines.append("")
        lines[-1] += part
        while len(lines[-1]) > most and len(lines[-1].rstrip()) > most:
            lines[-1:] = [lines[-1][:most], lines[-1][most:]]
    return [line.strip() for line in lines if line.strip()] or [name]


def in_lines(names: Sequence[str], length: float) -> str:
    """The ``labelExpr`` of a header whose names are broken into lines."""
    lines = {name: "\n".join(["", *lines_of(name, length)]) for name in names}
    return f'slice(split(({json.dumps(lines)})[datum.value], "\\n"), 1)'


def in_places(tokens: Sequence[str]) -> str:
    """The ``labelExpr`` of an axis with a token in the middle of each unit."""
    # One string: Vega takes "if" or "constructor" alone in quotes for a name of its own. And few
    # fonts have SentencePiece's mark for the start of a word
    text = "\n".join(["", *tokens]).replace("▁", "_")
    return f'split({json.dumps(text)}, "\\n")[floor(datum.value) + 1]'


def decimal(value: float | None, digits: int = 3) -> str:
    """Format a number, None as a dash; as on the page, only 0 and 1 themselves read 0 and 1."""
    if value is None:
        return "–"
    text = f"{value:.{digits}f}"
    unit = 10**-digits
    if value < 1 and float(text) == 1:
        return f">{1 - unit:.{digits}f}"
    if value != 0 and float(text) == 0:
        return f"<{unit:.{digits}f}" if value > 0 else f">−{unit:.{digits}f}"
    return text.replace("-", "−") if float(text) else text.removeprefix("-")
