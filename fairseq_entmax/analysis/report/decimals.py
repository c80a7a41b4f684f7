"""How numbers are written for people."""

from __future__ import annotations

import math

NOTHING = "–"


def decimal(value: float | None, digits: int = 3) -> str:
    """A number with so many decimals; a dash for none.

    Only what is 0 or 1 reads 0 or 1, as on the report's page: a density of all but one key is
    not that of all.
    """
    if value is None or math.isnan(value):
        return NOTHING
    text = f"{value:.{digits}f}"
    unit = 10**-digits
    if value < 1 and float(text) == 1:
        return f">{1 - unit:.{digits}f}"
    return f"<{unit:.{digits}f}" if value > 0 and float(text) == 0 else text
