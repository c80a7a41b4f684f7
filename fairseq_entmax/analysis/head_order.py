"""Whether what heads learned, such as alpha, still follows the numbers that they started from.

In a new model alpha starts at random. Where its heads end in the order in which they were drawn, a
head with a high alpha is not one that has found that it should be sparse. Spearman's correlation of the ranks at the
start and at the end says how far it is so: 1 is the same order, 0 says nothing of the start is left.
"""

from __future__ import annotations

import itertools
import os
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

TITLE = "rank correlation of start and end"
# With two heads the correlation is 1 or -1 whatever happened
LEAST_HEADS = 3
LARGE = 0.5
# Of values from 1 to 2: heads nearer to each other than this weigh words alike, and have no order
RESOLUTIONS = {"alpha": 1e-3, "p": 1e-3}
# Where all heads are before they rise to what was drawn
SOFTMAX = {"alpha": 1.0, "tv": 0.0, "oscar": 0.0}

Line = Mapping[str, Any]
# Attention to layer to the values of its heads
Present = Mapping[str, Mapping[str, Sequence[Any]]]


class RankCorrelation(NamedTuple):
    """The values of the heads that learn, at the first and at the last line of a record. Where they rise
    from softmax, the first is the one after softmax, which has the order in which they were drawn.

    ``start`` and ``end``: attention to the values of its heads, bottom layer first. Layers that
    share one value count once, and heads whose value no line changes are left out: they are fixed.
    Values of alpha and p that end within 0.001 of each other (:data:`RESOLUTIONS`) have the same rank."""

    name: str
    first_update: int
    last_update: int
    start: dict[str, list[float]]
    end: dict[str, list[float]]

    @property
    def heads(self) -> int:
        """How many values learn."""
        return sum(map(len, self.start.values()))

    @property
    def of_model(self) -> float | None:
        """The correlation over all; None of fewer than 3, or where all start or all end alike."""
        if self.first_update == self.last_update:
            return None
        return spearman([*itertools.chain(*self.start.values())], self._ranked(self.end))

    @property
    def of_attentions(self) -> dict[str, float | None]:
        """The same for each attention that has heads which learn."""
        return {
            name: self._replace(start={name: values}, end={name: self.end[name]}).of_model
            for name, values in self.start.items()
        }

    def together(self) -> tuple[int, float]:
        """How many heads end at the value where most do, and that value."""
        ((value, count),) = Counter(self._ranked(self.end)).most_common(1) or [(float("nan"), 0)]
        return count, value

    def reason(self) -> str:
        """Why there is no correlation of the whole model."""
        if self.first_update == self.last_update:
            return f"the record has one line, of update {self.first_update}"
        if self.heads < LEAST_HEADS:
            return f"{self.heads} learn it, and {LEAST_HEADS} are needed"
        return f"all {self.heads} start or end alike"

    def _ranked(self, values: Mapping[str, Sequence[float]]) -> list[float]:
        """The values of all attentions, those alike within the resolution as the lowest of them."""
        every = [value for heads in values.values() for value in heads]
        lowest: dict[float, float] = {}
        first = float("-inf")
        for value in sorted(every):
            if value - first > RESOLUTIONS.get(self.name, 0.0):
                first = value
            lowest[value] = first
        return [lowest[value] for value in every]


def rank_correlation(
    record: str | os.PathLike[str] | Sequence[Line], name: str = "alpha"
) -> RankCorrelation:
    """Compare the first line of a record of ``name`` with the last.

    A record is a file such as ``alpha.jsonl``, or its lines, each with ``update`` and the values
    under ``name`` or, as ``analysis.json`` has them, under ``values``: attention to layer to a list
    of numbers, None for heads without. A ValueError says why something is none."""
    lines = _read(record, name) if isinstance(record, str | os.PathLike) else list(record)
    if not lines:
        raise ValueError(f"the record of {name} has no line")
    softmax = {SOFTMAX.get(name), None}
    lines = [
        *itertools.dropwhile(lambda line: {*_values(line, name).values()} <= softmax, lines)
    ] or lines
    courses = [_values(line, name) for line in lines]
    for line, values in zip(lines, courses, strict=True):
        if list(values) != list(courses[0]):
            raise ValueError(f"update {line['update']} is of other heads than the first line")
    start: dict[str, list[float]] = {}
    end: dict[str, list[float]] = {}
    seen = set()
    for attention, layer, head in courses[0]:
        course = tuple(values[attention, layer, head] for values in courses)
        is_fixed = len(course) > 1 and len(set(course)) == 1
        # Layers that share a value each have it in the record
        shared = course if (attention, layer, 1) not in courses[0] and head == 0 else None
        if None in (course[0], course[-1]) or is_fixed or shared in seen:
            continue
        if shared is not None:
            seen.add(shared)
        start.setdefault(attention, []).append(course[0])
        end.setdefault(attention, []).append(course[-1])
    return RankCorrelation(name, lines[0]["update"], lines[-1]["update"], start, end)


def of_checkpoint(path: str, name: str, update: int | None, present: Present) -> RankCorrelation:
    """The same for a checkpoint, from the record beside it: its own values are the end."""
    from fairseq_entmax.models.head_record import record_path

    file = record_path(Path(path).parent, name)
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no {file.name} beside the checkpoint, which training writes unless "
            f"--alpha-log-interval is 0"
        )
    lines = lines_of_checkpoint(_read(file, name), name, update, present, str(file))
    return rank_correlation(lines, name)


def lines_of_checkpoint(
    lines: Sequence[Line], name: str, update: int | None, present: Present, shown: str
) -> list[Line]:
    """The lines of a record up to a checkpoint, which is the last of them, if it is its record."""
    course = [line for line in lines if update is None or line["update"] <= update]
    end = _values({name: present}, name)
    if not course:
        raise ValueError(f"{shown} has no line of this checkpoint's updates, {update}")
    if any(set(_values(line, name)) != set(end) for line in course):
        raise ValueError(f"{shown} is of other heads, as before pruning")
    last = course[-1]
    if update is None or last["update"] == update:
        recorded = _values(last, name)
        if any(_differ(recorded[where], value) for where, value in end.items()):
            raise ValueError(
                f"{shown} has other values at update {last['update']}: it is of another training, "
                f"or the checkpoint is a mean of several"
            )
        return course
    key = "values" if "values" in last else name
    # In the order of the record's own heads
    values = {one: {layer: present[one][layer] for layer in last[key][one]} for one in last[key]}
    return [*course, {"update": update, key: values}]


def as_text(result: RankCorrelation) -> str:
    """One line for a table."""
    title = f"{TITLE}, updates {result.first_update} to {result.last_update}: "
    if result.of_model is None:
        return f"{title}none, as {result.reason()}"
    each = ((name, "-" if r is None else f"{r:.2f}") for name, r in result.of_attentions.items())
    text = f"{title}{result.of_model:.2f} ({', '.join(map(' '.join, each))})"
    if result.of_model > LARGE:
        text += "; heads end much in the order in which they started"
    number, value = result.together()
    if number > result.heads / 2:
        text += f"; {number} of {result.heads} end alike, at {value:.4g}"
    return text


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The correlation of ranks, equal numbers with the mean of theirs; None of fewer than 3 pairs,
    or where one side is constant."""
    if len(first) < LEAST_HEADS:
        return None
    try:
        return statistics.correlation(_ranks(first), _ranks(second))
    except statistics.StatisticsError:
        return None


def _ranks(numbers: Sequence[float]) -> list[float]:
    order = sorted(numbers)
    return [order.index(number) + (order.count(number) - 1) / 2 for number in numbers]


def _read(file: str | os.PathLike[str], name: str) -> list[dict[str, Any]]:
    # Here, because it needs fairseq: the report has its lines from an analysis
    from fairseq_entmax.models.head_record import read_record

    return read_record(file, name)


def _values(line: Line, name: str) -> dict[tuple[str, str, int], Any]:
    """(attention, layer, head) to its value."""
    return {
        (attention, layer, head): value
        for attention, layers in (line[name] if name in line else line["values"]).items()
        for layer, heads in layers.items()
        for head, value in enumerate(heads)
    }


def _differ(recorded: float | None, present: float | None) -> bool:
    """Whether two values differ by more than files round away."""
    if recorded is None or present is None:
        return recorded is not present
    return abs(recorded - present) > 1e-4 * max(1.0, abs(present))
