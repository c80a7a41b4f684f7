"""The table of models that write summaries: ROUGE with intervals, and what each has more.

rouge_table.py write first.json second.json ... --names copy no-copy ... > rouge.tsv
rouge_table.py show rouge.tsv

The files are what fairseq-entmax rouge --output wrote of the first model with itself or each other
model to --compare it with.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from messages import one_sentence

TYPES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
INTERVAL = "95 % interval"
COLUMNS = ("model", *TYPES.values(), "change of ROUGE-L", INTERVAL, "p")


def row_of(name: str, document: dict[str, Any]) -> list[str]:
    """The cells of a model; of the first one, with nothing to compare, its own interval."""
    compared = document["compared"]
    statistic = document["settings"]["statistic"]
    if compared is None:
        scores = {kind: document[kind][statistic] for kind in TYPES}
        own = scores["rougeL"]
        change = ["", f"{own['low']:.2f} to {own['high']:.2f}", ""]
    else:
        scores = compared
        own = compared["rougeL"]
        interval = f"{own['low']:+.2f} to {own['high']:+.2f}"
        change = [f"{own['change']:+.2f}", interval, f"{own['p_bootstrap']:.3f}"]
    return [name, *(f"{scores[kind]['value']:.2f}" for kind in TYPES), *change]


def table(names: Sequence[str], files: Sequence[Path]) -> list[list[str]]:
    """The rows, the names of the columns first.

    Raises:
        ValueError: a file is none of fairseq-entmax rouge, or the numbers of both differ.
    """
    if len(names) != len(files):
        raise ValueError(f"--names has {len(names)} names for {len(files)} files: give as many")
    rows = [list(COLUMNS)]
    for name, path in zip(names, files, strict=True):
        try:
            rows.append(row_of(name, json.loads(path.read_text(encoding="utf-8"))))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path} is not of fairseq-entmax rouge: remove it") from error
    return rows


def aligned(rows: Iterable[Sequence[str]]) -> str:
    """The table for people: columns of one width, the names to the left."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *cells in rows:
        right = (f"{cell:>{width}}" for cell, width in zip(cells, widths[1:], strict=True))
        lines.append("  ".join([f"{first:<{widths[0]}}", *right]).rstrip() + "\n")
    return "".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="make it of what fairseq-entmax rouge wrote")
    write.add_argument("files", type=Path, nargs="+")
    write.add_argument("--names", nargs="+", required=True, help="of the models")
    show = commands.add_parser("show", help="print it for people")
    show.add_argument("table", type=Path)
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "write":
            rows = table(options.names, options.files)
            print("\n".join("\t".join(row) for row in rows))
            return
        with options.table.open(encoding="utf-8", newline="") as file:
            print(aligned(csv.reader(file, delimiter="\t")), end="")


if __name__ == "__main__":
    main()
