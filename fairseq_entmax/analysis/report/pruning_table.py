"""The table of a recipe's prune.sh: BLEU of models with fewer heads."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.reasons import named

COLUMNS = ("mapping", "model", *ATTENTIONS, "BLEU", "parameters", "sentences/s", "speed")
_MODEL = re.compile(r"baseline|continued|(?:all\d+|encoder\d+|\d+-\d+-\d+)-(?:pruned|scratch)")
_HEADS = re.compile(r"(\d+) \((\d+(?:,\d+)*)\)")
_NUMBERS = {"BLEU": float, "parameters": int, "sentences/s": float, "speed": float}


def read_pruning(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read the ``pruning.tsv`` that a recipe's ``prune.sh`` writes.

    Returns:
        One dictionary a model, in the file's order, with the file's columns: ``mapping``;
        ``model``, such as ``baseline`` or ``all24-pruned``; the heads left in each layer, bottom
        layer first, at the name of each attention; ``BLEU``, ``parameters``, ``sentences/s`` and
        ``speed`` (relative to the baseline) as numbers.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not such a table; names the line.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"--pruning {named(path)} does not exist or is no file: give the pruning.tsv that a recipe's "
            "prune.sh wrote"
        )
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"--pruning {path}: not a text, give a recipe's pruning.tsv") from None
    if not lines or tuple(lines[0].split("\t")) != COLUMNS:
        raise ValueError(
            f"--pruning {path}: the first line does not name the columns {', '.join(COLUMNS)}; "
            "give the pruning.tsv that a recipe's prune.sh wrote"
        )
    rows = [_read_row(f"--pruning {path}, line {n}", line) for n, line in enumerate(lines[1:], 2)]
    if not rows:
        raise ValueError(f"--pruning {path}: no model is in it; run prune.sh to its end")
    return rows


def _read_row(place: str, line: str) -> dict[str, Any]:
    cells = line.split("\t")
    if len(cells) != len(COLUMNS):
        raise ValueError(
            f"{place}: {len(cells)} columns instead of {len(COLUMNS)}; run prune.sh again"
        )
    row: dict[str, Any] = dict(zip(COLUMNS, cells, strict=True))
    if not _MODEL.fullmatch(row["model"]):
        raise ValueError(
            f"{place}: the model is '{row['model']}', not baseline, continued, or a budget with "
            "-pruned or -scratch such as all24-pruned"
        )
    for attention in ATTENTIONS:
        match = _HEADS.fullmatch(row[attention])
        layers = [int(number) for number in match[2].split(",")] if match else []
        if match is None or sum(layers) != int(match[1]):
            raise ValueError(
                f"{place}: the heads of {attention} are '{row[attention]}', not a sum with the "
                "heads of each layer such as 3 (2,1,0)"
            )
        row[attention] = layers
    for column, kind in _NUMBERS.items():
        try:
            row[column] = kind(row[column])
        except ValueError:
            row[column] = float("nan")
        if not 0 <= row[column] < float("inf"):
            raise ValueError(
                f"{place}: {column} is '{cells[COLUMNS.index(column)]}', not a number from 0"
            )
    return row
