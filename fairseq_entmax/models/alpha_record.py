"""What alpha does while a model trains: in fairseq's logs, and in a file of its own.

``alpha.jsonl`` in the save directory has one JSON object a line, in the order of updates,
each update at most once:

    {"update": 120, "alpha": {"encoder-self": {"0": [1.31, 1.62], "1": [1.5, 1.44]}, ...}}

``update`` is the number of optimiser steps behind the values: 0 is the start of training.
``alpha`` holds, for each attention that learns alpha, each layer (from 0, the bottom) with
the alpha of each head; a single value where the heads share one.
"""

from __future__ import annotations

import json
import os
import weakref
from pathlib import Path
from typing import Any

import torch
from fairseq.distributed import utils as distributed_utils

from fairseq_entmax import compat
from fairseq_entmax.attentions import ATTENTIONS
from fairseq_entmax.files import write_together
from fairseq_entmax.mappings import Entmax
from fairseq_entmax.modules.pruning_state import MOST_UPDATES

FILE_NAME = "alpha.jsonl"
DIGITS = 6

Alphas = dict[str, dict[str, list[float]]]


class AlphaMonitor:
    """Shows and records the learned alphas of a model while fairseq's trainer runs.

    Args:
        mappings: attention to layer number to the mapping that learns alpha there.
        save_dir: where to write ``alpha.jsonl``; None writes nothing.
        interval: a line each so many updates, and one where the record begins; validation
            adds a line of its own, so that there is one beside each validation score. 0
            writes nothing.

    Attributes:
        updates: the number of updates that fairseq's trainer gave last; None as long as no
            trainer runs this model, and then nothing is logged or written.
    """

    def __init__(
        self, mappings: dict[str, dict[int, Entmax]], save_dir: str | None, interval: int
    ) -> None:
        self._mappings = {
            attention: {layer: weakref.ref(mapping) for layer, mapping in layers.items()}
            for attention, layers in mappings.items()
        }
        self._interval = interval
        self._path = Path(save_dir) / FILE_NAME if save_dir and interval else None
        self._last: int | None = None
        self._has_begun = False
        self._statistics = {
            f"alpha_{attention.replace('-', '_')}_{name}": _Statistic(self, attention, name)
            for attention in mappings
            for name in ("mean", "min", "max")
        }
        self.updates: int | None = None

    def observe(self, training: bool) -> None:
        """Called at each forward pass. Waits for the device only when a line is due."""
        if self.updates is None or not self._mappings:
            return
        for name, statistic in self._statistics.items():
            compat.log_when_shown(name, statistic)
        # The trainer tells a model its updates before each step, so not the last one's
        after_last_step = None if training else compat.trainer_num_updates()
        update = self.updates if after_last_step is None else after_last_step
        if self._path is None or update == self._last:
            return
        if distributed_utils.get_global_rank() != 0:
            return
        is_due = update % self._interval == 0 or not training
        if not self._has_begun:
            self._has_begun = True
            try:
                kept = _continue_record(self._path, update, self.values())
            except ValueError as error:
                error = ValueError(f"{error}; move it away, or give another --save-dir")
                compat.stop_command(error)
                raise error from None
            self._last = kept[-1]["update"] if kept else None
            is_due = is_due or not kept
        if is_due and update != self._last:
            line = json.dumps({"update": update, "alpha": self.values()})
            with self._path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
            self._last = update

    def values(self) -> Alphas:
        """The present alphas."""
        return {
            attention: {str(layer): _numbers(reference()) for layer, reference in layers.items()}
            for attention, layers in self._mappings.items()
        }


def _numbers(mapping: Entmax | None) -> list[float]:
    assert mapping is not None
    assert mapping.alpha_logit is not None
    return [round(value, DIGITS) for value in torch.as_tensor(mapping.alpha).tolist()]


class _Statistic:
    """A number over the heads of one attention, worked out when it is called."""

    def __init__(self, monitor: AlphaMonitor, attention: str, name: str) -> None:
        # fairseq keeps its metrics as long as the process lives; not the model with them
        self._monitor = weakref.ref(monitor)
        self._attention = attention
        self._name = name

    def __call__(self) -> float:
        monitor = self._monitor()
        if monitor is None:
            return float("nan")
        values = [v for layer in monitor.values()[self._attention].values() for v in layer]
        statistic = {"mean": sum(values) / len(values), "min": min(values), "max": max(values)}
        return round(statistic[self._name], 4)


def read_record(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Read an ``alpha.jsonl``; a last line that was cut off in writing is left out.

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
            update, alpha = record["update"], record["alpha"]
            if not (isinstance(update, int) and 0 <= update <= MOST_UPDATES and _is_alphas(alpha)):
                raise ValueError("other values")
            records.append({"update": update, "alpha": alpha})
        except (ValueError, KeyError, TypeError, RecursionError):
            if number == len(lines):
                break  # what stands behind the last line end: nothing, or a line cut off
            raise ValueError(f"{path}, line {number}: not a line of {FILE_NAME}") from None
    return records


def _is_alphas(value: Any) -> bool:
    """Whether it has the form that :meth:`AlphaMonitor.values` gives, whatever the numbers."""
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


def _continue_record(path: Path, update: int, values: Alphas) -> list[dict[str, Any]]:
    """Cut the record back to where this process starts, and return what is left of it.

    A process that was stopped may have written lines behind the checkpoint that training
    resumes from; those updates are about to happen again.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        return []
    kept = [record for record in read_record(path) if record["update"] <= update]
    if kept and kept[-1]["update"] == update and kept[-1]["alpha"] != values:
        kept.pop()
    text = "".join(json.dumps(record) + "\n" for record in kept)
    write_together({path: text.encode()})
    return kept
