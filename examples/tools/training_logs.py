"""The course of a training, from what fairseq-train logged.

training_logs.py runs/a/train.log runs/b/train.log     # how many updates they made, together

A training that was stopped and went on logs some epochs twice, or part of them: of what the log says
twice, the last holds.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from messages import one_sentence

LINE = re.compile(r"^.*\| (train|valid) \| epoch (\d+) \| (.*)$")
VALUE = re.compile(r"(\w+) (\S+)$")
BEGINS = re.compile(r"\| begin training epoch \d+")
# Behind some updates, on a line of its own kind, "loss=1.5, num_updates=50" in place of "loss 1.5 | ..."
INNER = re.compile(r"\| train_inner \| .*?(\w+=.*)$")
HEADS_OPEN = "heads_open_"
PATIENCE_RAN_OUT = "early stop since valid performance hasn't improved"


class Epoch(NamedTuple):
    """A validation: epochs from 1, updates until then, losses in bits (None where the log has no end)."""

    epoch: int
    updates: int
    valid_loss: float
    valid_nll_loss: float
    train_loss: float | None


@dataclass(frozen=True)
class Course:
    """A training from its begin to its end, and whether patience ended it."""

    epochs: tuple[Epoch, ...]
    by_patience: bool

    @property
    def updates(self) -> int:
        return self.epochs[-1].updates


def _values(text: str) -> dict[str, str]:
    found = (VALUE.search(part) for part in text.split(" | "))
    return {match[1]: match[2] for match in found if match}


def read_course(path: Path) -> Course:
    """Read a log; one without a validation is a ``ValueError``."""
    valid: dict[int, tuple[int, dict[str, str]]] = {}  # number of updates to epoch and values
    train: dict[int, float] = {}
    by_patience = False
    for line in path.read_text("utf-8", "replace").splitlines():
        if PATIENCE_RAN_OUT in line:
            by_patience = True
        elif BEGINS.search(line):
            by_patience = False
        match = LINE.match(line)
        values = _values(match[3]) if match else {}
        if match is None or not values.get("num_updates", "").isdigit():
            continue
        updates = int(values["num_updates"])
        if match[1] == "train":
            train[updates] = float(values["loss"])
            continue
        # A training that goes on from an earlier point makes anew all that was behind it
        valid = {number: entry for number, entry in valid.items() if number < updates}
        valid[updates] = (int(match[2]), values)
    if not valid:
        raise ValueError(f"{path} has no validation of a training: remove its folder and run again")
    epochs = []
    for updates, (epoch, values) in sorted(valid.items()):
        losses = float(values["loss"]), float(values.get("nll_loss", values["loss"]))
        epochs.append(Epoch(epoch, updates, *losses, train.get(updates)))
    return Course(tuple(epochs), by_patience)


def read_search(path: Path, most: int) -> list[tuple[int, dict[str, float]]]:
    """How many heads of each attention were open after how many updates, at most so many points."""
    found: dict[int, dict[str, float]] = {}
    for line in path.read_text("utf-8", "replace").splitlines():
        values = _logged(line)
        heads = {
            name.removeprefix(HEADS_OPEN).replace("_", "-"): float(value)
            for name, value in values.items()
            if name.startswith(HEADS_OPEN)
        }
        if heads and values.get("num_updates", "").isdigit():
            updates = int(values["num_updates"])
            found = {number: one for number, one in found.items() if number < updates}
            found[updates] = heads
    points = list(found.items())
    if not points:
        raise ValueError(f"{path} has no number of open heads: remove its folder and run again")
    if len(points) <= most:
        return points
    last = len(points) - 1
    return [points[round(number * last / (most - 1))] for number in range(most)]


def _logged(line: str) -> dict[str, str]:
    inner, summary = INNER.search(line), LINE.match(line)
    if inner:
        return dict(part.split("=", 1) for part in inner[1].split(", ") if "=" in part)
    return _values(summary[3]) if summary and summary[1] == "valid" else {}


if __name__ == "__main__":
    with one_sentence():
        print(sum(read_course(Path(path)).updates for path in sys.argv[1:]))
