"""What the options of fairseq's commands can be told to lack before anything is loaded.

Without these checks fairseq meets a path that is not there later, and in a traceback.
"""

from __future__ import annotations

import os
from typing import Any

EVALUATING = ("fairseq-generate", "fairseq-interactive", "fairseq-eval-lm", "fairseq-validate")


def check(command: str, given: Any) -> None:
    """Check the parsed options of a command of fairseq's."""
    _check_data(given)
    if command in EVALUATING:
        _check_evaluation(given)


def _check_data(given: Any) -> None:
    for folder in _local(getattr(given, "data", None)):
        if not os.path.isdir(folder):
            raise ValueError(
                f"there is no folder {folder} with data: give the folder that fairseq-preprocess "
                f"wrote, its --destdir"
            )


def _check_evaluation(given: Any) -> None:
    if not getattr(given, "path", None):
        raise ValueError("give --path CHECKPOINT, a file that fairseq-train wrote")
    is_whole = not getattr(given, "checkpoint_suffix", "")
    is_whole = is_whole and getattr(given, "checkpoint_shard_count", 1) == 1
    for path in _local(given.path) if is_whole else []:
        if not os.path.exists(path):
            raise ValueError(f"--path got {path}: there is no such checkpoint")
    text = getattr(given, "input", "-")
    if text != "-" and not os.path.exists(text):
        raise ValueError(f"--input got {text}: there is no such text")


def _local(paths: Any) -> list[str]:
    """Several paths in one text, as fairseq has them; none where one is an address."""
    is_text = isinstance(paths, str) and "://" not in paths and "|" not in paths
    return paths.split(os.pathsep) if is_text else []
