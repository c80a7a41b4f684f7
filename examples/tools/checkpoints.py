"""Check and repair checkpoints of a training that was killed while it wrote them.

checkpoints.py whole FILE      # fails unless the file is complete
checkpoints.py mend FOLDER     # makes the checkpoints fit for resuming; fails if it cannot

fairseq writes the first file of a checkpoint under a temporary name and renames it, but plainly
copies the others from it: from checkpoint_<epoch>_<updates>.pt if the recipe saves by updates,
otherwise from checkpoint_best.pt. A kill during a copy leaves a truncated or missing file; its
source is then complete and has the same content. A kill between two copies leaves
checkpoint_last.pt one step behind. This needs no repair: that step is trained again, with the same
result.
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
DAMAGED = 3  # the exit status if checkpoints are damaged and cannot be repaired
BY_UPDATES = re.compile(r"checkpoint_[0-9]+_([0-9]+)\.pt")


def is_whole(path: Path) -> bool:
    """Whether a file is a complete checkpoint: a zip archive whose parts match their checksums."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except (OSError, EOFError, zipfile.BadZipFile):
        return False


def newest(folder: Path) -> Path | None:
    """The last of the checkpoints that are saved by updates; None if it is damaged or missing."""
    names = (BY_UPDATES.fullmatch(path.name) for path in folder.glob("checkpoint_*.pt"))
    updates = {int(name[1]): folder / name[0] for name in names if name}
    path = updates[max(updates)] if updates else None
    return path if path is not None and is_whole(path) else None


def mend(folder: Path) -> bool:
    """Make the checkpoints of a run fit for resuming; return whether that succeeded."""
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
    say(f"{target.name} is missing or cut short: copying it again from {source.name}")
    unfinished = target.with_name(f"{target.name}.tmp")
    shutil.copyfile(source, unfinished)
    os.replace(unfinished, target)


def main(arguments: list[str]) -> None:
    command, path = arguments[0], Path(arguments[1])
    with one_sentence():
        if not (is_whole(path) if command == "whole" else mend(path)):
            sys.exit(DAMAGED)


if __name__ == "__main__":
    main(sys.argv[1:])
