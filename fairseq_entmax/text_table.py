"""Tables as text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

GAP = "  "


def text_table(rows: Sequence[Sequence[str]], left_aligned: Collection[int] = (0,)) -> str:
    """Format rows as lines, with columns as wide as their widest cell and no trailing white space.

    The columns ``left_aligned``, counted from 0, are aligned left, all others right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        GAP.join(
            cell.ljust(width) if place in left_aligned else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )
