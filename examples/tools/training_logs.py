"""The course of a training, from what fairseq-train logged.

training_logs.py updates runs/a/train.log runs/b/train.log     # how many they made, together

A training that was stopped and went on logs some epochs twice, or part of them: of what the log says
twice, the last holds.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from messages import one_sentence

LINE = re.compile(r"^.*\| (train|valid) \| epoch (\d+) \| (.*)$")
VALUE = re.compile(r"(\w+) (\S+)$")
BEGINS = re.compile(r"\| begin training epoch \d+")
# Behind some updates, on a line of its own kind, "loss=1.5, num_updates=50" in place of "loss 1.5 | ..."
INNER = re.compile(r"\| train_inner \| .*?(\w+=.*)$")
HEADS_OPEN = "heads_open_"
LAST_PART = 3 / 4  # of a training: how much its loss fell since tells how far it was from its end
PATIENCE_RAN_OUT = "early stop since valid performance hasn't improved"


@dataclass(frozen=True)
class Epoch:
    """One validation of a training, and the training before it.

    Attributes:
        epoch: from 1.
        updates: of the training until then.
        valid_loss: of the criterion, in bits, smoothed where the criterion smooths.
        valid_nll_loss: in bits a token.
        train_loss: as `valid_loss`; None where the epoch has no end in the log.
    """

    epoch: int
    updates: int
    valid_loss: float
    valid_nll_loss: float
    train_loss: float | None


@dataclass(frozen=True)
class Course:
    """A training from its begin to its end.

    Attributes:
        epochs: in their order.
        by_patience: whether it ended as the validation loss no longer fell.
    """

    epochs: tuple[Epoch, ...]
    by_patience: bool

    @property
    def updates(self) -> int:
        return self.epochs[-1].updates

    @property
    def last_fall(self) -> float | None:
        """By how much the validation loss fell in the last quarter of the updates, in bits.

        Between two validations it is taken to fall evenly. None where the first is in that quarter.
        """
        begin = self.updates * LAST_PART
        for one, other in pairwise(self.epochs):
            if one.updates <= begin <= other.updates:
                part = (begin - one.updates) / (other.updates - one.updates)
                loss = one.valid_loss + part * (other.valid_loss - one.valid_loss)
                return loss - self.epochs[-1].valid_loss
        return None


def _values(text: str) -> dict[str, str]:
    found = (VALUE.search(part) for part in text.split(" | "))
    return {match[1]: match[2] for match in found if match}


def read_course(path: Path) -> Course:
    """Read a log.

    Raises:
        ValueError: it has no validation.
        OSError: it cannot be read.
    """
    valid: dict[int, tuple[int, dict[str, str]]] = {}  # number of updates to epoch and values
    train: dict[int, dict[str, str]] = {}
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
            train[updates] = values
            continue
        # A training that goes on from an earlier point makes anew all that was behind it
        valid = {number: entry for number, entry in valid.items() if number < updates}
        valid[updates] = (int(match[2]), values)
    if not valid:
        raise ValueError(f"{path} has no validation of a training: remove its folder and run again")
    epochs = [
        Epoch(
            epoch,
            updates,
            float(values["loss"]),
            float(values.get("nll_loss", values["loss"])),
            float(train[updates]["loss"]) if updates in train else None,
        )
        for updates, (epoch, values) in sorted(valid.items())
    ]
    return Course(tuple(epochs), by_patience)


@dataclass(frozen=True)
class OpenHeads:
    """How many heads a search for heads to take out has open.

    Attributes:
        updates: of the search until then.
        open: of each attention with gates, such as encoder-self, the heads of all its layers.
    """

    updates: int
    open: dict[str, float]


def read_search(path: Path, most: int) -> list[OpenHeads]:
    """Read of a search's log how many heads were open in its course.

    Args:
        most: points that are kept, at equal distances, with the first and the last; 2 or more.

    Raises:
        ValueError: it says nothing of heads.
        OSError: it cannot be read.
    """
    found: dict[int, OpenHeads] = {}
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
            found[updates] = OpenHeads(updates, heads)
    points = list(found.values())
    if not points:
        raise ValueError(f"{path} has no number of open heads: remove its folder and run again")
    if len(points) <= most:
        return points
    last = len(points) - 1
    return [points[round(number * last / (most - 1))] for number in range(most)]


def _logged(line: str) -> dict[str, str]:
    """The values of a line, during an epoch or of a validation."""
    inner, summary = INNER.search(line), LINE.match(line)
    if inner:
        return dict(part.split("=", 1) for part in inner[1].split(", ") if "=" in part)
    return _values(summary[3]) if summary and summary[1] == "valid" else {}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    updates = commands.add_parser("updates", help="print how many trainings made, together")
    updates.add_argument("logs", type=Path, nargs="+")
    options = parser.parse_args(arguments)
    with one_sentence():
        print(sum(read_course(path).updates for path in options.logs))


if __name__ == "__main__":
    main()
