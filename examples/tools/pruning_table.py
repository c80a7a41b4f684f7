"""The table of prune.sh: what each model keeps, how well it translates, and how fast.

pruning_table.py write < runs > pruning.tsv
pruning_table.py show pruning.tsv

A line of runs has, with tabs between them: mapping, model, checkpoint, the scores of its test set,
and what scripts/benchmarks/pruned_generation.py measured of all models of the mapping.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from messages import one_sentence
from translations import score_of

# With the width of each column as it is shown: to the left in the first five
COLUMNS = {
    "mapping": "<9",
    "model": "<18",
    "encoder-self": "<12",
    "decoder-self": "<12",
    "cross": "<12",
    "BLEU": ">6",
    "parameters": ">11",
    "sentences/s": ">12",
    "speed": ">6",
}


def heads_of(checkpoint: str) -> str:
    """The options for a model with the heads of a checkpoint.

    Returns:
        Such as ``--encoder-self-attn-heads 0,2,0 --decoder-self-attn-heads ...``.

    Raises:
        ValueError: the checkpoint cannot be read; the package has said why.
    """
    from fairseq_entmax.cli import main as fairseq_entmax

    printed = io.StringIO()
    with redirect_stdout(printed):
        status = fairseq_entmax(["prune", "--print-config", checkpoint])
    if status != 0:
        raise ValueError(f"the heads of {checkpoint} cannot be read: the message is above")
    return printed.getvalue()


def heads_in_words(options: str) -> list[str]:
    """For each attention, the heads of all layers and of each: ``--x 0,2,0`` to ``2 (0,2,0)``."""
    counts = options.split()[1::2]
    return [f"{sum(map(int, count.split(',')))} ({count})" for count in counts]


def measured(speed: Path, checkpoint: str) -> dict[str, Any]:
    """What was measured of a model.

    Raises:
        ValueError: it is not among those measured.
    """
    rows = json.loads(speed.read_text(encoding="utf-8"))["models"]
    for row in rows:
        if row["model"] == checkpoint:
            return row
    raise ValueError(f"{speed} has no {checkpoint}: remove that file and run again")


def table(
    runs: Iterable[Sequence[str]], heads_of: Callable[[str], str] = heads_of
) -> list[list[str]]:
    """The rows of the table, the names of its columns first.

    Args:
        runs: mapping, model, checkpoint, file of scores and file of speeds of each model.
        heads_of: reads the heads of a checkpoint.

    Raises:
        ValueError: a file does not have what is needed.
    """
    rows = [list(COLUMNS)]
    for mapping, model, checkpoint, scores, speed in runs:
        bleu = score_of("BLEU", Path(scores))
        heads = heads_in_words(heads_of(checkpoint))
        row = measured(Path(speed), checkpoint)
        numbers = (
            f"{row['parameters']}",
            f"{row['sentences_per_second']:.1f}",
            f"{row['ratio']:.2f}",
        )
        rows.append([mapping, model, *heads, bleu, *numbers])
    return rows


def aligned(rows: Iterable[Sequence[str]]) -> str:
    """The table for people: columns of one width."""
    formats = COLUMNS.values()
    return "".join(
        " ".join(f"{cell:{form}}" for cell, form in zip(row, formats, strict=True)) + "\n"
        for row in rows
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("write", help="make it of the runs on standard input")
    show = commands.add_parser("show", help="print it for people")
    show.add_argument("table", type=Path)
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "write":
            rows = table(line.rstrip("\n").split("\t") for line in sys.stdin)
            print("\n".join("\t".join(row) for row in rows))
            return
        with options.table.open(encoding="utf-8", newline="") as file:
            print(aligned(csv.reader(file, delimiter="\t")), end="")


if __name__ == "__main__":
    main()
