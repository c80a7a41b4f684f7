"""How numbers are written for people."""

from __future__ import annotations

import math

NOTHING = "–"


def decimal(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals; a dash for none.

    Only what is 0 or 1 reads 0 or 1, as on the report's page: a density of all but one key is
    not that of all. A minus is U+2212, as there.
    """
    if value is None or math.isnan(value):
        return NOTHING
    text = f"{value:.{digits}f}"
    unit = 10**-digits
    if value < 1 and float(text) == 1:
        return f">{1 - unit:.{digits}f}"
    if value != 0 and float(text) == 0:
        return f"<{unit:.{digits}f}" if value > 0 else f">−{unit:.{digits}f}"
    return text.replace("-", "−") if float(text) else text.removeprefix("-")


def cell_digits(low: float, high: float) -> int:
    """How many decimals cells of a grid have whose numbers are between these."""
    return 2 if max(abs(low), abs(high)) >= 0.1 else 3
