"""Scores of models side by side, and which differences a test set of this size can tell.

side_by_side.py write runs/stock-10epochs runs/entmax-10epochs --names stock entmax > scores.tsv
side_by_side.py show scores.tsv

A run's folder has test.hyp, test.ref and scores.txt. p is that of sacreBLEU's paired bootstrap of
BLEU against the first model, with 1,000 samples of the test sentences.
"""

from __future__ import annotations

import argparse
import csv
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from messages import one_sentence
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from translations import lines_of, score_of

SAMPLES = 1000
COLUMNS = ("model", "BLEU", "change", "p", "chrF2")


def p_values(hypotheses: Sequence[Sequence[str]], references: Sequence[str]) -> list[float | None]:
    """Of each model, how probable so large a difference to the first is by chance.

    Args:
        hypotheses: translations of each model, in the order of the references.

    Returns:
        None for the first, and for one with the same translations.
    """
    if len(hypotheses) < 2:
        return [None]
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)
    named: list = [(str(number), list(text)) for number, text in enumerate(hypotheses)]
    bleu: dict = {"BLEU": BLEU(references=[list(references)])}
    test = PairedTest(named, bleu, None, test_type="bs", n_samples=SAMPLES, n_jobs=1)
    _, scores = test()
    results: list = scores["BLEU"]
    found = [result.p_value for result in results]
    return [
        None if list(text) == list(hypotheses[0]) else p
        for text, p in zip(hypotheses, found, strict=True)
    ]


def rows(runs: Sequence[Path], names: Sequence[str]) -> list[dict[str, str]]:
    """The table: a row a model, in the order given.

    Raises:
        ValueError: the models were scored on different test sets.
    """
    references = lines_of(runs[0] / "test.ref")
    for run in runs:
        if lines_of(run / "test.ref") != references:
            raise ValueError(
                f"{run} and {runs[0]} were scored on different test sets: run evaluate.sh again"
            )
    chances = p_values([lines_of(run / "test.hyp") for run in runs], references)
    table: list[dict[str, str]] = []
    for run, name, chance in zip(runs, names, chances, strict=True):
        scores = {metric: score_of(metric, run / "scores.txt") for metric in ("BLEU", "chrF2")}
        first = float(table[0]["BLEU"]) if table else None
        change = "" if first is None else f"{float(scores['BLEU']) - first:+.2f}"
        p = "" if chance is None else f"{chance:.3f}"
        table.append({"model": name, "change": change, "p": p, **scores})
    return table


def show(path: Path) -> str:
    """The table with its columns below each other."""
    with path.open(encoding="utf-8", newline="") as file:
        table = list(csv.reader(file, delimiter="\t"))
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    lines = []
    for row in table:
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        cells[0] = row[0].ljust(widths[0])
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write", help="print the table, with tabs")
    writing.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    writing.add_argument("--names", nargs="+", required=True, help="what to call them")
    showing = commands.add_parser("show", help="print a table for people")
    showing.add_argument("table", type=Path)
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "show":
            print(show(options.table))
            return
        writer = csv.DictWriter(sys.stdout, COLUMNS, delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows(options.runs, options.names))


if __name__ == "__main__":
    main()
