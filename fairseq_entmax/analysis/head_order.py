"""Rank correlation between the initial and the final values of what heads learn, such as alpha.

In a new model every alpha is drawn at random. If the final order of the heads is that of the draws,
a high alpha does not show that the head has learned to be sparse. Spearman's correlation between
initial and final ranks measures this: 1 is the same order, and 0 is an unrelated one.
"""

from __future__ import annotations

import itertools
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_entmax.head_records import read_record, record_path

TITLE = "rank correlation of initial and final values"
# With two heads the correlation can only be 1 or -1
LEAST_HEADS = 3
LARGE = 0.7
# For values from 1 to 2: heads that differ by no more weigh words alike, and count as equal
RESOLUTIONS = {"alpha": 1e-3, "p": 1e-3}
# The value that means softmax, where heads start if they rise to their drawn values
SOFTMAX = {"alpha": 1.0, "tv": 0.0, "oscar": 0.0}

Line = Mapping[str, Any]
# Attention -> layer -> values of the layer's heads
Present = Mapping[str, Mapping[str, Sequence[Any]]]


class RankCorrelation(NamedTuple):
    """Initial and final values of the heads that learn, from a record's first and last line. If
    heads rise from softmax, the first line is the one after softmax, which has the drawn order.

    ``start`` and ``end`` map each attention to its heads' values, bottom layer first. Layers that
    share a value count once. Heads whose value never changes are fixed, and are left out. Final
    values of alpha or p within 0.001 of each other (:data:`RESOLUTIONS`) have the same rank."""

    name: str
    first_update: int
    last_update: int
    start: dict[str, list[float]]
    end: dict[str, list[float]]

    @property
    def heads(self) -> int:
        """The number of learned values."""
        return sum(map(len, self.start.values()))

    @property
    def of_model(self) -> float | None:
        """The correlation over all; None for one update, under 3 values, or a constant side."""
        if self.first_update == self.last_update:
            return None
        return spearman([*itertools.chain(*self.start.values())], self._ranked(self.end))

    @property
    def of_attentions(self) -> dict[str, float | None]:
        """The correlation within each attention that has learning heads."""
        return {
            name: self._replace(start={name: values}, end={name: self.end[name]}).of_model
            for name, values in self.start.items()
        }

    def together(self) -> tuple[int, float]:
        """How many heads end at the most common final value, and that value."""
        ((value, count),) = Counter(self._ranked(self.end)).most_common(1) or [(float("nan"), 0)]
        return count, value

    def reason(self) -> str:
        """Why :attr:`of_model` is None."""
        if self.first_update == self.last_update:
            return f"the record has only one line, of update {self.first_update}"
        if self.heads < LEAST_HEADS:
            return f"at least {LEAST_HEADS} heads must learn it (here: {self.heads})"
        return f"all {self.heads} have the same initial or final value"

    def _ranked(self, values: Mapping[str, Sequence[float]]) -> list[float]:
        """All values as one list; values equal within the resolution become the lowest of them."""
        every = [value for heads in values.values() for value in heads]
        lowest: dict[float, float] = {}
        first = float("-inf")
        for value in sorted(every):
            if value - first > RESOLUTIONS.get(self.name, 0.0):
                first = value
            lowest[value] = first
        return [lowest[value] for value in every]


def rank_correlation(lines: Sequence[Line], name: str = "alpha") -> RankCorrelation:
    """Compare the first line of a record of ``name`` with the last.

    A line has ``update``, and ``values``: attention -> layer -> a number per head, None for heads
    without one. Raises ValueError, with the reason, if the lines are not of one record."""
    if not lines:
        raise ValueError(f"the record of {name} is empty")
    lines = lines[first_drawn(lines, name) :]
    courses = [_values(line) for line in lines]
    for line, values in zip(lines, courses, strict=True):
        if list(values) != list(courses[0]):
            raise ValueError(f"update {line['update']} has other heads than the first line")
    start: dict[str, list[float]] = {}
    end: dict[str, list[float]] = {}
    seen = set()
    for attention, layer, head in courses[0]:
        course = tuple(values[attention, layer, head] for values in courses)
        is_fixed = len(course) > 1 and len(set(course)) == 1
        # Layers that share one value each repeat it in the record
        shared = course if (attention, layer, 1) not in courses[0] and head == 0 else None
        if None in (course[0], course[-1]) or is_fixed or shared in seen:
            continue
        if shared is not None:
            seen.add(shared)
        start.setdefault(attention, []).append(course[0])
        end.setdefault(attention, []).append(course[-1])
    return RankCorrelation(name, lines[0]["update"], lines[-1]["update"], start, end)


def first_drawn(lines: Sequence[Line], name: str) -> int:
    """The place of the first line in which a head has left softmax; 0 if none has."""
    softmax = {SOFTMAX.get(name), None}
    return next((n for n, x in enumerate(lines) if not {*_values(x).values()} <= softmax), 0)


def lines_of(file: Path, name: str) -> list[Line]:
    """Read a training's record of ``name``, with its values under ``values``."""
    return [{"update": one["update"], "values": one[name]} for one in read_record(file, name)]


def of_checkpoint(path: str, name: str, update: int | None, present: Present) -> RankCorrelation:
    """Compare the start of the record beside a checkpoint with the checkpoint's own values."""
    file = record_path(Path(path).parent, name)
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no {file.name} beside the checkpoint; training writes it unless --alpha-log-interval is 0"
        )
    # A fixed value may be in the record as well, because it rose from softmax
    lines = [of_heads(line, present) for line in lines_of(file, name)]
    return rank_correlation(lines_of_checkpoint(lines, update, present, str(file)), name)


def of_heads(line: Line, learned: Present) -> Line:
    """Restrict a line of a record to layers in ``learned``, and there to heads that are not None."""
    present = {
        attention: {
            layer: _where_known(heads, learned[attention][layer])
            for layer, heads in layers.items()
            if layer in learned[attention]
        }
        for attention, layers in line["values"].items()
        if attention in learned
    }
    return {**line, "values": present}


def _where_known(heads: Sequence[Any], known: Sequence[Any]) -> Sequence[Any]:
    if len(heads) != len(known):  # one number for all heads, or the record of other heads
        return heads
    return [None if one is None else value for value, one in zip(heads, known, strict=True)]


def lines_of_checkpoint(
    lines: Sequence[Line], update: int | None, present: Present, shown: str
) -> list[Line]:
    """Return a record's lines up to a checkpoint, which comes last; check that it is its record."""
    course = [line for line in lines if update is None or line["update"] <= update]
    end = _values({"values": present})
    if not course:
        raise ValueError(f"{shown} has no line up to update {update}, that of the checkpoint")
    if any(set(_values(line)) != set(end) for line in course):
        raise ValueError(f"{shown} has other heads: perhaps it is from before pruning")
    last = course[-1]
    if update is None or last["update"] == update:
        recorded = _values(last)
        if any(_differ(recorded[where], value) for where, value in end.items()):
            raise ValueError(
                f"{shown} has other values at update {last['update']}: it is from another "
                f"training, or the checkpoint is an average of several"
            )
        return course
    # In the record's order of attentions and layers
    values = {
        one: {layer: present[one][layer] for layer in layers}
        for one, layers in last["values"].items()
    }
    return [*course, {"update": update, "values": values}]


def as_text(result: RankCorrelation) -> str:
    """Format the result as the line below a table."""
    title = f"{TITLE}, updates {result.first_update} to {result.last_update}: "
    if result.of_model is None:
        return f"{title}none, because {result.reason()}"
    each = ((name, "-" if r is None else f"{r:.2f}") for name, r in result.of_attentions.items())
    text = f"{title}{result.of_model:.2f} ({', '.join(map(' '.join, each))})"
    number, value = result.together()
    if number > result.heads / 2:  # which have no order among themselves
        text += f"; {number} of {result.heads} heads end at the same value, {value:.4g}"
    elif result.of_model >= LARGE:
        text += "; the heads largely keep their initial order"
    return text


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation; equal numbers share the mean of their ranks. None for fewer than
    3 pairs, or if one side is constant."""
    if len(first) < LEAST_HEADS:
        return None
    try:
        return statistics.correlation(_ranks(first), _ranks(second))
    except statistics.StatisticsError:
        return None


def _ranks(numbers: Sequence[float]) -> list[float]:
    order = sorted(numbers)
    return [order.index(number) + (order.count(number) - 1) / 2 for number in numbers]


def _values(line: Line) -> dict[tuple[str, str, int], Any]:
    """Map (attention, layer, head) to its value."""
    return {
        (attention, layer, head): value
        for attention, layers in line["values"].items()
        for layer, heads in layers.items()
        for head, value in enumerate(heads)
    }


def _differ(recorded: float | None, present: float | None) -> bool:
    """Whether two values differ by more than the rounding in files."""
    if recorded is None or present is None:
        return recorded is not present
    return abs(recorded - present) > 1e-4 * max(1.0, abs(present))
