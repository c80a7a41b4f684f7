"""Print a tab-separated table in aligned columns.

tables.py scores.tsv
"""

from __future__ import annotations

import sys
from pathlib import Path

from translations import lines_of

from fairseq_entmax.text_table import text_table


def shown(path: Path) -> str:
    rows = [line.split("\t") for line in lines_of(path)]
    columns = enumerate(zip(*rows[1:], strict=True))
    text_columns = [place for place, cells in columns if not any(x[:1].isdigit() for x in cells)]
    return text_table(rows, [0, *text_columns])


if __name__ == "__main__":
    print(shown(Path(sys.argv[1])))
