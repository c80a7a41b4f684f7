"""The table of prune.sh: what each model keeps, how well it translates, and how fast.

pruning_table.py write < runs > pruning.tsv
pruning_table.py write --scores ROUGE-1,ROUGE-2,ROUGE-L < runs > pruning.tsv
pruning_table.py show pruning.tsv

A line of runs has, with tabs between them: mapping, model, checkpoint, the scores of its test set,
and what scripts/benchmarks/pruned_generation.py measured of all models of the mapping, or nothing
where speed was not measured.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from messages import one_sentence
from translations import score_of

# With the width of each column as it is shown: to the left in those of a model and of its heads
MODEL = {"mapping": "<9", "model": "<18"}
HEADS = {"encoder-self": "<12", "decoder-self": "<12", "cross": "<12"}
BLEU, ACCURACY = "BLEU", "accuracy"
SPEED = {"parameters": ">11", "sentences/s": ">12", "speed": ">6"}
COLUMNS = {**MODEL, **HEADS, BLEU: ">6", **SPEED}
OTHER = ">8"  # another score
ROUGE = re.compile("ROUGE-([12L])")
ATTENTION = re.compile(rf"--({'|'.join(HEADS)})-attn-heads ([0-9,]+)")


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


def heads_in_words(options: str) -> dict[str, str]:
    """For each attention, the heads of all layers and of each: ``0,2,0`` becomes ``2 (0,2,0)``."""
    return {
        attention: f"{sum(map(int, count.split(',')))} ({count})"
        for attention, count in ATTENTION.findall(options)
    }


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


def score_in(metric: str, path: Path) -> str:
    """A score, out of what sacrebleu printed, or what a tool or ``rouge`` wrote as JSON.

    Args:
        metric: such as BLEU, or ROUGE-1, of which this is F1, or `ACCURACY` of ``accuracy.py``; else,
            of JSON of ``perplexity.py``, the name of an evaluation, of which this is the perplexity
            of a word.

    Raises:
        ValueError: the file does not have it.
    """
    rouge = ROUGE.fullmatch(metric)
    if rouge is None and path.suffix != ".json":
        return score_of(metric, path)
    document = json.loads(path.read_text(encoding="utf-8"))
    if metric == ACCURACY:
        return f"{document[ACCURACY]:.2f}"
    if rouge is None:
        return f"{document[metric]['word_perplexity']:.2f}"
    return f"{document[f'rouge{rouge[1]}']['f1']['value']:.2f}"


def table(
    runs: Iterable[Sequence[str]],
    heads_of: Callable[[str], str] = heads_of,
    metrics: Sequence[str] = (BLEU,),
) -> list[list[str]]:
    """The rows of the table, the names of its columns first.

    Args:
        runs: mapping, model, checkpoint, file of scores and file of speeds, or no text for it, of
            each model.
        heads_of: reads the heads of a checkpoint.
        metrics: what the table has of the scores.

    Raises:
        ValueError: a file does not have what is needed.
    """
    rows: list[list[str]] = []
    attentions: Sequence[str] = ()
    timed: Sequence[str] = ()
    for mapping, model, checkpoint, scores, speed in runs:
        found = [score_in(metric, Path(scores)) for metric in metrics]
        heads = heads_in_words(heads_of(checkpoint))
        attentions = tuple(heads)
        rows.append([mapping, model, *heads.values(), *found])
        if speed:
            timed = tuple(SPEED)
            row = measured(Path(speed), checkpoint)
            rate, ratio = row["sentences_per_second"], row["ratio"]
            rows[-1] += [f"{row['parameters']}", f"{rate:.1f}", f"{ratio:.2f}"]
    return [[*MODEL, *attentions, *metrics, *timed], *rows]


def aligned(rows: Iterable[Sequence[str]]) -> str:
    """The table for people: columns of one width."""
    rows = list(rows)
    formats = [
        f"{form[0]}{max(int(form[1:]), *map(len, column))}"
        for form, column in zip(
            (COLUMNS.get(name, OTHER) for name in rows[0]), zip(*rows, strict=True), strict=True
        )
    ]
    return "".join(
        " ".join(f"{cell:{form}}" for cell, form in zip(row, formats, strict=True)) + "\n"
        for row in rows
    )


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    write = commands.add_parser("write", help="make it of the runs on standard input")
    write.add_argument("--scores", default=BLEU, help="with commas between them")
    show = commands.add_parser("show", help="print it for people")
    show.add_argument("table", type=Path)
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "write":
            runs = (line.rstrip("\n").split("\t") for line in sys.stdin)
            rows = table(runs, metrics=options.scores.split(","))
            print("\n".join("\t".join(row) for row in rows))
            return
        with options.table.open(encoding="utf-8", newline="") as file:
            print(aligned(csv.reader(file, delimiter="\t")), end="")


if __name__ == "__main__":
    main()
