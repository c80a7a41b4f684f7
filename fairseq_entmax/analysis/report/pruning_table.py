"""The table of a recipe's prune.sh: BLEU of models with fewer heads."""

from __future__ import annotations

import csv
import os
import re
from pathlib import Path
from typing import Any

from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.reasons import named

COLUMNS = ("mapping", "model", *ATTENTIONS, "BLEU", "parameters", "sentences/s", "speed")
_NUMBERS = {"BLEU": float, "parameters": int, "sentences/s": float, "speed": float}
_HEADS = re.compile(r"\d+ \((\d+(?:,\d+)*)\)")


def read_pruning(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """The rows of the ``pruning.tsv`` of a recipe, its columns by name; the heads left in each layer are
    at the names of the attentions."""
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"--pruning {named(path)} does not exist or is no file: give the pruning.tsv that a recipe's "
            "prune.sh wrote"
        )
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        lines = []
    if not lines or tuple(lines[0].split("\t")) != COLUMNS:
        raise ValueError(
            f"--pruning {path}: the first line does not name the columns {', '.join(COLUMNS)}; "
            "give the pruning.tsv that a recipe's prune.sh wrote"
        )
    rows = []
    for number, row in enumerate(csv.DictReader(lines, delimiter="\t"), 2):
        try:
            rows.append(_read(row))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"--pruning {path}, line {number}: {error}; run prune.sh again"
            ) from None
    return rows


def _read(row: dict[str, Any]) -> dict[str, Any]:
    for attention in ATTENTIONS:
        match = _HEADS.fullmatch(row[attention])
        if match is None:
            raise ValueError(
                f"the heads of {attention} are '{row[attention]}', not a sum with the heads of each "
                "layer such as 3 (2,1,0)"
            )
        row[attention] = [int(heads) for heads in match[1].split(",")]
    return row | {column: kind(row[column]) for column, kind in _NUMBERS.items()}
