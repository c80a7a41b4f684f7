"""Read the course of a training from fairseq-train's log.

training_logs.py runs/a/train.log runs/b/train.log     # prints their total number of updates

A training that was stopped and resumed logs some epochs, or parts of them, twice: the last entry
counts.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from messages import one_sentence

# "valid | epoch 001 | ... | loss 5.1 | num_updates 100", and after some updates
# "train_inner | epoch 001:  50 / 100 loss=1.5, num_updates=50"
LINE = re.compile(r"\| (valid|train_inner) \| (epoch .*)$")
VALUE = re.compile(r"(\w+)[ =]([^\s=]+)$")
BEGINS = "| begin training epoch "
HEADS_OPEN = "heads_open_"
PATIENCE_RAN_OUT = "early stop since valid performance hasn't improved"


class Epoch(NamedTuple):
    """A validation: epoch (from 1), updates so far, loss in bits, without label smoothing."""

    epoch: int
    updates: int
    valid_nll_loss: float


class Course(NamedTuple):
    """A training from beginning to end, and whether patience ended it."""

    epochs: tuple[Epoch, ...]
    by_patience: bool

    @property
    def updates(self) -> int:
        return self.epochs[-1].updates


def _logged(log: str, *kinds: str) -> dict[int, dict[str, str]]:
    """The values in lines of these kinds, by the number of updates so far."""
    found: dict[int, dict[str, str]] = {}
    for line in log.splitlines():
        match = LINE.search(line)
        if match is None or match[1] not in kinds:
            continue
        pairs = (VALUE.search(part) for part in re.split(r" \| |, ", match[2]))
        values = {pair[1]: pair[2] for pair in pairs if pair}
        if values.get("num_updates", "").isdigit():
            updates = int(values["num_updates"])
            # A training resumed from an earlier point repeats all updates after that point
            found = {number: one for number, one in found.items() if number < updates}
            found[updates] = values
    return found


def read_course(path: Path) -> Course:
    """Read a log; raise ``ValueError`` if it has no validation."""
    log = path.read_text("utf-8", "replace")
    epochs = []
    for updates, values in _logged(log, "valid").items():
        loss = float(values.get("nll_loss", values["loss"]))
        epochs.append(Epoch(int(values["epoch"]), updates, loss))
    if not epochs:
        raise ValueError(f"{path} does not log any validation: remove its folder and run again")
    return Course(tuple(epochs), log.rfind(PATIENCE_RAN_OUT) > log.rfind(BEGINS))


def read_search(path: Path, most: int) -> list[tuple[int, dict[str, float]]]:
    """The number of open heads of each attention by updates, in at most `most` points."""
    points, log = [], path.read_text("utf-8", "replace")
    for updates, values in _logged(log, "valid", "train_inner").items():
        names = [name for name in values if name.startswith(HEADS_OPEN)]
        heads = {n.removeprefix(HEADS_OPEN).replace("_", "-"): float(values[n]) for n in names}
        if heads:
            points.append((updates, heads))
    if not points:
        raise ValueError(f"{path} does not log the open heads: remove its folder and run again")
    if len(points) <= most:
        return points
    last = len(points) - 1
    return [points[round(number * last / (most - 1))] for number in range(most)]


if __name__ == "__main__":
    with one_sentence():
        print(sum(read_course(Path(path)).updates for path in sys.argv[1:]))
