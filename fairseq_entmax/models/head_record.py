"""What heads learn while a model trains, recorded in fairseq's logs and in files.

Each quantity that mappings learn per head has a file of its name in the save directory; see
:mod:`fairseq_entmax.head_records`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any

from fairseq.distributed import utils as distributed_utils

from fairseq_entmax import command_errors, compat
from fairseq_entmax.attention import attention_modules
from fairseq_entmax.files import write_together
from fairseq_entmax.head_records import DIGITS, read_record, record_path
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.mappings.rise import MOST_UPDATES
from fairseq_entmax.models import values
from fairseq_entmax.models.feature import Feature, option


@dataclass
class HeadRecord(Feature):
    name = "record"
    alpha_log_interval: int = option(
        10,
        "write alpha, and every other number that the heads learn, to a file named after it, such "
        "as alpha.jsonl, in the save directory every N updates; 0: never",
        values.whole_number(0, MOST_UPDATES),
        "N",
    )

    def attach(self, model: Any, args: Any) -> None:
        save_dir = None if getattr(args, "no_save", False) else getattr(args, "save_dir", None)
        model.monitor = HeadMonitor(attention_modules(model), save_dir, self.alpha_log_interval)


class HeadMonitor:
    """Logs and records what the heads of a model learn while fairseq's trainer runs.

    A file gets a line every ``interval`` updates (0: no files), one at its beginning, and one at each
    validation. Without ``save_dir``, nothing is written.
    """

    def __init__(
        self, attentions: Iterable[tuple[str, int, Any]], save_dir: str | None, interval: int
    ) -> None:
        self._learned: dict[str, _Learned] = {}
        for attention, layer, module in attentions:
            if module.mapping is None:
                continue
            for name in module.mapping.changing:
                path = record_path(save_dir, name) if save_dir and interval else None
                learned = self._learned.setdefault(name, _Learned(name, path))
                learned.add(attention, layer, module.mapping)
        self._interval = interval
        self.is_trained = False  # by fairseq's trainer; until then nothing is logged or written

    def observe(self, training: bool) -> None:
        """Called at each forward pass. Waits for the device only when a line is due."""
        update = compat.trainer_num_updates()
        if not self.is_trained or update is None:
            return
        is_due = not training or (self._interval > 0 and update % self._interval == 0)
        for learned in self._learned.values():
            learned.log()
            if distributed_utils.get_global_rank() == 0:
                learned.record(update, is_due)


class _Learned:
    """One quantity that heads learn, and its file."""

    def __init__(self, name: str, path: Path | None) -> None:
        # The mappings that learn it, by attention and layer
        self.mappings: dict[str, dict[int, Mapping]] = {}
        # Heads without this quantity; a NaN that comes later means that training diverged
        self._missing: dict[tuple[str, int], list[bool]] = {}
        self._name = name
        self._path = path
        self._last: int | None = None  # the update of the last line

    def add(self, attention: str, layer: int, mapping: Mapping) -> None:
        """Watch a mapping that has just been built."""
        self.mappings.setdefault(attention, {})[layer] = mapping
        self._missing[attention, layer] = mapping.head_values()[self._name].isnan().tolist()

    def values(self, attention: str) -> dict[str, list[float | None]]:
        """The current values of the heads of one attention, by layer."""
        return {
            str(layer): [
                None if is_missing else round(value, DIGITS)
                for value, is_missing in zip(
                    mapping.head_values()[self._name].tolist(),
                    self._missing[attention, layer],
                    strict=True,
                )
            ]
            for layer, mapping in self.mappings[attention].items()
        }

    def learned(self, attention: str) -> list[float]:
        """The current values of the heads of one attention, without those that never change."""
        return [
            value
            for layer, values in self.values(attention).items()
            for value, changes in zip(
                values, self.mappings[attention][int(layer)].changes(self._name), strict=True
            )
            if changes and value is not None
        ]

    def log(self) -> None:
        """Have fairseq log mean, minimum and maximum over the heads of each attention."""
        for attention in self.mappings:
            for statistic, function in (("mean", fmean), ("min", min), ("max", max)):
                name = f"{self._name}_{attention.replace('-', '_')}_{statistic}"
                compat.log_when_shown(name, partial(_over_heads, attention, function), self)

    def record(self, update: int, is_due: bool) -> None:
        """Add a line if one is due, or if the record has none yet."""
        if self._path is None or update == self._last:
            return
        if self._last is None:
            with command_errors.stopping_command():
                self._last = self._continue_record(self._path, update)
        if update != self._last and (is_due or self._last is None):
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(self._line(update)) + "\n")
            self._last = update

    def _line(self, update: int) -> dict[str, Any]:
        return {"update": update, self._name: {name: self.values(name) for name in self.mappings}}

    def _continue_record(self, path: Path, update: int) -> int | None:
        """Cut the record back to where this process starts; return the update of the last line.

        A process that was stopped may have recorded updates made after the checkpoint from which
        training resumes; those updates are about to be made again.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            return None
        try:
            lines = [line for line in read_record(path, self._name) if line["update"] <= update]
        except ValueError as error:
            raise ValueError(f"{error}; move it away, or give another --save-dir") from None
        if lines and lines[-1]["update"] == update and lines[-1] != self._line(update):
            lines.pop()
        write_together({path: "".join(json.dumps(line) + "\n" for line in lines).encode()})
        return lines[-1]["update"] if lines else None


def _over_heads(
    attention: str, function: Callable[[list[float]], float], *learned: _Learned
) -> float:
    """A statistic over the heads of one attention; NaN if the model no longer exists."""
    return round(function(learned[0].learned(attention)), 4) if learned else float("nan")
