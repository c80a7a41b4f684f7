"""The table of prune.sh: the heads that each model keeps, its scores, and its speed.

pruning_table.py ROUGE-1,ROUGE-2,ROUGE-L < runs > pruning.tsv

A line of runs has, separated by tabs: mapping, model, checkpoint, the file with its test scores,
and the file of scripts/benchmarks/pruned_generation.py for all models of the mapping, or nothing if
speed was not measured.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from messages import one_sentence
from translations import score_of

BLEU = "BLEU"
SPEED = ("parameters", "sentences/s", "speed")
ROUGE = re.compile("ROUGE-([12L])")


def heads_of(checkpoint: str) -> dict[str, str]:
    """For each attention, the number of heads in all layers and in each, such as ``2 (0,2,0)``."""
    from fairseq_entmax.models.checkpoint_model import read_model
    from fairseq_entmax.pruning.remaining_heads import head_counts

    counts = head_counts(read_model(checkpoint))
    return {name: f"{sum(own)} ({','.join(map(str, own))})" for name, own in counts.items()}


def measured(speed: Path, checkpoint: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = json.loads(speed.read_text(encoding="utf-8"))["models"]
    return next(row for row in rows if row["model"] == checkpoint)


def score_in(metric: str, path: Path) -> str:
    """BLEU, accuracy, ROUGE-1 and so on (F1), or the word perplexity of the evaluation `metric`."""
    if path.suffix != ".json":
        return score_of(metric, path)
    document = json.loads(path.read_text(encoding="utf-8"))
    if rouge := ROUGE.fullmatch(metric):
        return f"{document[f'rouge{rouge[1]}']['f1']['value']:.2f}"
    return f"{document[metric]['word_perplexity']:.2f}"


def table(
    runs: Iterable[Sequence[str]],
    heads_of: Callable[[str], dict[str, str]] = heads_of,
    metrics: Sequence[str] = (BLEU,),
) -> list[list[str]]:
    rows: list[list[str]] = []
    attentions: Sequence[str] = ()
    timed: Sequence[str] = ()
    for mapping, model, checkpoint, scores, speed in runs:
        found = [score_in(metric, Path(scores)) for metric in metrics]
        heads = heads_of(checkpoint)
        attentions = tuple(heads)
        rows.append([mapping, model, *heads.values(), *found])
        if speed:
            timed = SPEED
            row = measured(Path(speed), checkpoint)
            rate, ratio = row["sentences_per_second"], row["ratio"]
            rows[-1] += [f"{row['parameters']}", f"{rate:.1f}", f"{ratio:.2f}"]
    return [["mapping", "model", *attentions, *metrics, *timed], *rows]


if __name__ == "__main__":
    with one_sentence():
        runs = (line.rstrip("\n").split("\t") for line in sys.stdin)
        for row in table(runs, metrics=sys.argv[1].split(",")):
            print("\t".join(row))
