"""Files of what heads learn while a model trains, one for each quantity, beside its checkpoints.

``alpha.jsonl`` has one JSON object per line, in the order of updates, each update at most once:

    {"update": 120, "alpha": {"encoder-self": {"0": [1.31, 1.62], "1": [1.5, 1.44]}, ...}}

``update`` is the number of optimiser steps made so far: 0 is the start of training.
``alpha`` holds, for each attention that learns alpha and each of its layers (from 0, the
bottom), the alpha of each head, or a single value if the heads share one. With per-head
mappings, it is null for heads without alpha.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

DIGITS = 6


def record_path(folder: str | os.PathLike[str], name: str) -> Path:
    """The file of a quantity, such as ``alpha``, in a save directory."""
    return Path(folder) / f"{name}.jsonl"


def read_record(path: str | os.PathLike[str], name: str = "alpha") -> list[dict[str, Any]]:
    """Read the record of a quantity, such as ``alpha.jsonl``: one dictionary per line.

    A last line that was cut off in writing is left out.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a UTF-8 text: {error}") from None
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            records.append({"update": int(record["update"]), name: dict(record[name])})
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            if number == len(lines):
                break  # after the last newline there is nothing, or a line that was cut off
            raise ValueError(f"{path}, line {number}: not a line of {name}.jsonl") from None
    return records
