"""Checkpoints of a training that was killed while it wrote them.

checkpoints.py whole FILE      # fails unless the file is whole
checkpoints.py mend FOLDER     # makes the checkpoints fit for resuming; fails where it cannot
checkpoints.py updates FILE    # prints how many its model was trained for

fairseq writes the first file of a checkpoint under a temporary name and renames it, but makes the
others by plain copying of the first: of checkpoint_<epoch>_<updates>.pt where the recipe saves by
updates, else of checkpoint_best.pt. A kill in a copy leaves a file that is cut short or missing;
the one that it was being copied from is then whole and has the same content. A kill between the
copies leaves checkpoint_last.pt one step behind, which needs no repair: that step is trained
again, with the same outcome.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

from messages import one_sentence, say

BEST, LAST = "checkpoint_best.pt", "checkpoint_last.pt"
DAMAGED = 3  # the exit status where checkpoints are not whole, and cannot be made so
BY_UPDATES = re.compile(r"checkpoint_[0-9]+_([0-9]+)\.pt")


def is_whole(path: Path) -> bool:
    """Tell whether a file is a whole checkpoint: a zip archive with a checksum for each part."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (OSError, EOFError, zipfile.BadZipFile):
        return False


def newest(folder: Path) -> Path | None:
    """Of the checkpoints that are saved by updates, the last one, if it is whole."""
    names = (BY_UPDATES.fullmatch(path.name) for path in folder.glob("checkpoint_*.pt"))
    updates = {int(name[1]): folder / name[0] for name in names if name}
    path = updates[max(updates)] if updates else None
    return path if path is not None and is_whole(path) else None


def mend(folder: Path) -> bool:
    """Make the checkpoints of a run fit for resuming; tell whether they are."""
    for leftover in folder.glob("*.tmp"):
        leftover.unlink()
    best, last, source = folder / BEST, folder / LAST, newest(folder)
    if best.exists() and not is_whole(best):
        if source is None:
            return False
        _copy(source, best)
    if is_whole(last):
        return True
    source = source or best
    if not source.exists():
        return not last.exists()
    _copy(source, last)
    return True


def _copy(source: Path, target: Path) -> None:
    say(
        f"{target.name} is missing or cut short: taking {source.name}, from which it was being copied"
    )
    unfinished = target.with_name(f"{target.name}.tmp")
    shutil.copyfile(source, unfinished)
    os.replace(unfinished, target)


def updates(path: Path) -> int:
    from fairseq_entmax.checkpoints import load_checkpoint

    return int(load_checkpoint(f"{path}")["optimizer_history"][-1]["num_updates"])


def main(arguments: list[str]) -> None:
    command, path = arguments[0], Path(arguments[1])
    with one_sentence():
        if command == "updates":
            print(updates(path))
        elif not (is_whole(path) if command == "whole" else mend(path)):
            sys.exit(DAMAGED)


if __name__ == "__main__":
    main(sys.argv[1:])
