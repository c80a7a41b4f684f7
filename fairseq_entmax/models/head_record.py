"""What heads learn while a model trains: in fairseq's logs, and in files of its own.

Each kind of number that a mapping learns for its heads has a file in the save directory, of its
name: ``alpha.jsonl`` has one JSON object a line, in the order of updates, each update at most once:

    {"update": 120, "alpha": {"encoder-self": {"0": [1.31, 1.62], "1": [1.5, 1.44]}, ...}}

``update`` is the number of optimiser steps behind the values: 0 is the start of training.
``alpha`` holds, for each attention that learns alpha, each layer (from 0, the bottom) with
the alpha of each head; a single value where the heads share one.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from fairseq.distributed import utils as distributed_utils

from fairseq_entmax import compat
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.files import write_together
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.modules import MultiheadAttention
from fairseq_entmax.modules.pruning_state import MOST_UPDATES

DIGITS = 6

# Attention to layer to the value of each head
Values = dict[str, dict[str, list[float]]]


def record_path(folder: str | os.PathLike[str], name: str) -> Path:
    """The file of a kind of number, such as ``alpha``, in a save directory."""
    return Path(folder) / f"{name}.jsonl"


class HeadMonitor:
    """Shows and records what the heads of a model learn while fairseq's trainer runs.

    Args:
        attentions: those of the model, with their names and layers.
        save_dir: where to write the records; None writes nothing.
        interval: a line each so many updates, and one where the record begins; validation
            adds a line of its own, so that there is one beside each validation score. 0
            writes nothing.

    Attributes:
        is_trained: whether fairseq's trainer runs this model; before, nothing is logged or
            written.
    """

    def __init__(
        self,
        attentions: Iterable[tuple[str, int, MultiheadAttention]],
        save_dir: str | None,
        interval: int,
    ) -> None:
        self._learned: dict[str, _Learned] = {}
        for attention, layer, module in attentions:
            for name in () if module.mapping is None else module.mapping.learned:
                assert module.mapping is not None
                learned = self._learned.setdefault(name, _Learned(name))
                learned.add(attention, layer, module.mapping)
        is_written = save_dir and interval
        self._records = [
            _Record(learned, record_path(save_dir, name) if save_dir and is_written else None)
            for name, learned in self._learned.items()
        ]
        self._interval = interval
        self.is_trained = False

    def observe(self, training: bool) -> None:
        """Called at each forward pass. Waits for the device only when a line is due."""
        update = compat.trainer_num_updates()
        if not self.is_trained or update is None:
            return
        for learned in self._learned.values():
            learned.log()
        is_due = not training or (self._interval > 0 and update % self._interval == 0)
        if distributed_utils.get_global_rank() == 0:
            for record in self._records:
                record.write(update, is_due)

    def values(self, name: str) -> Values:
        """The present values of one kind."""
        return self._learned[name].values()


class _Learned:
    """One kind of number that heads learn."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.attentions: dict[str, dict[int, weakref.ref[Mapping]]] = {}

    def add(self, attention: str, layer: int, mapping: Mapping) -> None:
        """Note a mapping that learns it."""
        self.attentions.setdefault(attention, {})[layer] = weakref.ref(mapping)

    def values(self, only: str | None = None) -> Values:
        """The present values, of all attentions or of one."""
        return {
            attention: {str(layer): self._numbers(layers[layer]) for layer in layers}
            for attention, layers in self.attentions.items()
            if only in (None, attention)
        }

    def log(self) -> None:
        """Let fairseq show mean, minimum and maximum over the heads of each attention."""
        for attention in self.attentions:
            for statistic, function in (("mean", _mean), ("min", min), ("max", max)):
                name = f"{self.name}_{attention.replace('-', '_')}_{statistic}"
                compat.log_when_shown(name, partial(_over_heads, attention, function), self)

    def _numbers(self, reference: weakref.ref[Mapping]) -> list[float]:
        mapping = reference()
        assert mapping is not None
        values: list[float] = mapping.head_values()[self.name].tolist()
        return [round(value, DIGITS) for value in values]


class _Record:
    """The file of one kind of number."""

    def __init__(self, learned: _Learned, path: Path | None) -> None:
        self._learned = learned
        self._path = path
        self._last: int | None = None
        self._has_begun = False

    def write(self, update: int, is_due: bool) -> None:
        """Add a line if one is due, or the first of a record."""
        if self._path is None or update == self._last:
            return
        name, values = self._learned.name, None
        if not self._has_begun:
            self._has_begun = True
            values = self._learned.values()
            try:
                kept = _continue_record(self._path, name, update, values)
            except ValueError as error:
                error = ValueError(f"{error}; move it away, or give another --save-dir")
                compat.stop_command(error)
                raise error from None
            self._last = kept[-1]["update"] if kept else None
            is_due = is_due or not kept
        if is_due and update != self._last:
            values = self._learned.values() if values is None else values
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"update": update, name: values}) + "\n")
            self._last = update


def _over_heads(
    attention: str, function: Callable[[list[float]], float], *learned: _Learned
) -> float:
    """A number over the heads of one attention; NaN where the model is gone."""
    if not learned:
        return float("nan")
    layers = learned[0].values(attention)[attention]
    return round(function([value for layer in layers.values() for value in layer]), 4)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def read_record(path: str | os.PathLike[str], name: str = "alpha") -> list[dict[str, Any]]:
    """Read a record such as ``alpha.jsonl``; a last line cut off in writing is left out.

    Args:
        path: the file.
        name: the kind of number that it is of.

    Returns:
        One dictionary a line, in the file's order.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no text, or a line that is not the last is not in the format; names it.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text: {error}") from None
    records = []
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            update, values = record["update"], record[name]
            if not (
                isinstance(update, int) and 0 <= update <= MOST_UPDATES and _are_values(values)
            ):
                raise ValueError("other values")
            records.append({"update": update, name: values})
        except (ValueError, KeyError, TypeError, RecursionError):
            if number == len(lines):
                break  # what stands behind the last line end: nothing, or a line cut off
            raise ValueError(f"{path}, line {number}: not a line of {name}.jsonl") from None
    return records


def _are_values(value: Any) -> bool:
    """Whether it has the form that :meth:`HeadMonitor.values` gives, whatever the numbers."""
    return isinstance(value, dict) and all(
        attention in ATTENTIONS
        and isinstance(layers, dict)
        and all(
            layer.isascii() and layer.isdigit() and len(layer) <= 4 and _are_numbers(heads)
            for layer, heads in layers.items()
        )
        for attention, layers in value.items()
    )


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, float | int) for value in values)


def _continue_record(path: Path, name: str, update: int, values: Values) -> list[dict[str, Any]]:
    """Cut the record back to where this process starts, and return what is left of it.

    A process that was stopped may have written lines behind the checkpoint that training
    resumes from; those updates are about to happen again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return []
    kept = [record for record in read_record(path, name) if record["update"] <= update]
    if kept and kept[-1]["update"] == update and kept[-1][name] != values:
        kept.pop()
    text = "".join(json.dumps(record) + "\n" for record in kept)
    write_together({path: text.encode()})
    return kept
