"""Tables of text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

GAP = "  "


def text_table(rows: Sequence[Sequence[str]], left_aligned: Collection[int] = (0,)) -> str:
    """Lines of columns, each as wide as its widest cell, without white space at their ends.

    Cells of the columns ``left_aligned``, from 0, begin where the column does, those of others end with it."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        GAP.join(
            cell.ljust(width) if place in left_aligned else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
