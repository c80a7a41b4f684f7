"""Whether what heads learned, such as alpha, still follows the numbers that they started from.

In a new model alpha starts at random. Where its heads end in the order in which they were drawn, a
head with a high alpha is not one that has found that it should be sparse. Spearman's correlation of the ranks at the
start and at the end says how far it is so: 1 is the same order, 0 says nothing of the start is left.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TITLE = "rank correlation of start and end"
# With two heads the correlation is 1 or -1 whatever happened
LEAST_HEADS = 3
# Of values from 1 to 2: heads nearer to each other than this weigh words alike, and have no order
RESOLUTIONS = {"alpha": 1e-3, "p": 1e-3}
# Between two updates values have gone at most this often as far as the record's own lines say
_FURTHER = 2

Line = Mapping[str, Any]
# Attention to layer to the values of its heads
Present = Mapping[str, Mapping[str, Sequence[Any]]]
# (attention, layer, head)
Where = tuple[str, str, int]


@dataclass(frozen=True)
class StartAndEnd:
    """The values of the heads that learn, at the first and at the last line of a record.

    Attributes:
        name: the kind of value, such as ``alpha``.
        first_update, last_update: of the two lines.
        start, end: attention to the values of its heads, bottom layer first. Heads that share one
            value count once, and heads whose value no line changes are left out: they are fixed.
        of_model: the correlation of ranks over all of these; None where there are fewer than 3, where
            all start or all end alike, or there is one line.
        of_attentions: the same for each attention that has heads which learn.

    Values of alpha and p within 0.001 of each other (:data:`RESOLUTIONS`) have the same rank.
    """

    name: str
    first_update: int
    last_update: int
    start: dict[str, list[float]]
    end: dict[str, list[float]]
    of_model: float | None = None
    of_attentions: dict[str, float | None] = field(default_factory=dict)

    @property
    def heads(self) -> int:
        """How many values learn."""
        return sum(map(len, self.start.values()))

    def together(self) -> tuple[int, float]:
        """How many heads end at the value where most do, and that value."""
        ends = _in_steps(_joined(self.end), self.name)
        value = max(ends, key=ends.count, default=float("nan"))
        return ends.count(value), value

    def reason(self) -> str:
        """Why there is no correlation of the whole model; empty where there is one."""
        if self.of_model is not None:
            return ""
        if self.first_update == self.last_update:
            return f"the record has one line, of update {self.first_update}"
        if self.heads < LEAST_HEADS:
            return f"{self.heads} learn it, and {LEAST_HEADS} are needed"
        starts = _in_steps(_joined(self.start), self.name)
        where = "start" if len(set(starts)) == 1 else "end"
        value = _in_steps(_joined(getattr(self, where)), self.name)[0]
        return f"all {self.heads} {where} alike, at {value:.4g}"


def rank_correlation(
    record: str | os.PathLike[str] | Sequence[Line],
    name: str = "alpha",
    update: int | None = None,
) -> StartAndEnd:
    """Compare the first line of a record with the last.

    Args:
        record: a file such as ``alpha.jsonl``, or its lines, each with ``update`` and the values
            under ``name`` or, as ``analysis.json`` has them, under ``values``: attention to layer
            to a list of numbers, None for heads without.
        name: the kind of value.
        update: of the checkpoint that is asked about: lines behind it do not count. None takes
            them all.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no record of this name, has no line up to that update, or its lines are
            of different heads.
    """
    lines = _read(record, name) if isinstance(record, str | os.PathLike) else list(record)
    lines = [line for line in lines if update is None or line["update"] <= update]
    shown = record if isinstance(record, str | os.PathLike) else f"the record of {name}"
    if not lines:
        until = "" if update is None else f" up to update {update}"
        raise ValueError(f"{shown} has no line{until}")
    courses: dict[Where, list[float | None]] = {}
    for line in lines:
        values = _values(line, name)
        if courses and list(values) != list(courses):
            raise ValueError(f"{shown}: update {line['update']} is of other heads than the first")
        for where, value in values.items():
            courses.setdefault(where, []).append(value)
    start, end = _learned(courses)
    has_two = len(lines) > 1
    return StartAndEnd(
        name,
        lines[0]["update"],
        lines[-1]["update"],
        start,
        end,
        _of_ranks(_joined(start), _joined(end), name) if has_two else None,
        {at: _of_ranks(own, end[at], name) if has_two else None for at, own in start.items()},
    )


def of_checkpoint(path: str, name: str, update: int | None, present: Present) -> StartAndEnd:
    """The same for a checkpoint, from the record beside it: its own values are the end.

    Args:
        path: of the checkpoint.
        name: the kind of value.
        update: of the checkpoint; None where it does not say.
        present: what the checkpoint has: attention to layer to the values of its heads.

    Raises:
        FileNotFoundError: there is no record beside it.
        ValueError: as :func:`rank_correlation` and :func:`lines_of_checkpoint`.
    """
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
    """The lines of a record up to a checkpoint, which is the last of them, if it is its record.

    Args:
        lines: of the record, in the order of updates.
        name: the kind of value.
        update: of the checkpoint; None where it does not say, and the last line is to be its own.
        present: what the checkpoint has: attention to layer to the values of its heads.
        shown: what errors call the record.

    Raises:
        ValueError: the record has no line up to that update, or is not that of the checkpoint:
            it is of other heads, or has other values at that update. Without a line of that update,
            the nearest is further away than training went between lines, or cannot be judged.
    """
    kept = [line for line in lines if update is None or line["update"] <= update]
    if not kept:
        raise ValueError(
            f"{shown} has no line{'' if update is None else f' up to update {update}'}"
        )
    own = _values({name: present}, name)
    if any(set(_values(line, name)) != set(own) for line in kept):
        raise ValueError(f"{shown} is of other heads, as before pruning")
    at = kept[-1]["update"] if update is None else update
    if kept[-1]["update"] == at:
        if not _is_within(_values(kept[-1], name), own, 0):
            raise ValueError(
                f"{shown} has other values at update {at}: it is of another training, or the "
                f"checkpoint is a mean of several"
            )
        return kept
    alike = [line for line in lines if set(_values(line, name)) == set(own)]
    nearest = min(alike, key=lambda line: abs(line["update"] - at))
    if not _is_within(_values(nearest, name), own, _way(alike, name, at, nearest, shown)):
        raise ValueError(
            f"{shown} has values at update {nearest['update']} that are too far from the "
            f"checkpoint's at {at}: it is of another training, or the checkpoint is a mean of several"
        )
    # In the order of the record's own heads
    values = {
        attention: {layer: present[attention][layer] for layer in layers}
        for attention, layers in _layers(kept[-1], name).items()
    }
    return [*kept, {"update": at, "values" if "values" in kept[-1] else name: values}]


def _way(lines: Sequence[Line], name: str, at: int, nearest: Line, shown: str) -> float:
    """How far values may have gone from the nearest line to an update without a line."""
    steps = [after["update"] - before["update"] for before, after in itertools.pairwise(lines)]
    gap = abs(nearest["update"] - at)
    if not steps or gap > max(steps):
        raise ValueError(
            f"{shown} has no line near update {at} of the checkpoint, the nearest is of "
            f"{nearest['update']}: nothing says that it is of the same training"
        )
    courses = [_values(line, name) for line in lines]
    # Steps of a walk at random, so that a short way is compared with long ones
    return _FURTHER * max(
        _distance(before, after) * (gap / step) ** 0.5
        for step, (before, after) in zip(steps, itertools.pairwise(courses), strict=True)
    )


def _distance(before: Mapping[Where, float | None], after: Mapping[Where, float | None]) -> float:
    """How far the head has gone that went furthest."""
    pairs = ((before[where], value) for where, value in after.items())
    return max(
        (abs(new - old) for old, new in pairs if old is not None and new is not None), default=0.0
    )


def _read(file: str | os.PathLike[str], name: str) -> list[dict[str, Any]]:
    # Here, because it needs fairseq: the report has its lines from an analysis
    from fairseq_entmax.models.head_record import read_record

    return read_record(file, name)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The correlation of ranks, from -1 to 1; equal numbers have the mean of their ranks.

    None where there are fewer than 3 pairs, or one side is constant.
    """
    if len(first) < LEAST_HEADS:
        return None
    ranks, others = _ranks(first), _ranks(second)
    middle = (len(ranks) - 1) / 2
    pairs = list(zip(ranks, others, strict=True))
    product = sum((a - middle) * (b - middle) for a, b in pairs)
    squares = [sum((rank - middle) ** 2 for rank in own) for own in (ranks, others)]
    if not all(squares):
        return None
    return float(product / (squares[0] * squares[1]) ** 0.5)


def _of_ranks(first: Sequence[float], second: Sequence[float], name: str) -> float | None:
    return spearman(_in_steps(first, name), _in_steps(second, name))


def _in_steps(values: Sequence[float], name: str) -> list[float]:
    """The values, those alike within the resolution as the lowest of them."""
    resolution = RESOLUTIONS.get(name, 0.0)
    lowest: dict[float, float] = {}
    first = float("-inf")
    for value in sorted(values):
        if value - first > resolution:
            first = value
        lowest[value] = first
    return [lowest[value] for value in values]


def _ranks(numbers: Sequence[float]) -> list[float]:
    order = sorted(numbers)
    return [order.index(number) + (order.count(number) - 1) / 2 for number in numbers]


def _layers(line: Line, name: str) -> Present:
    found: Present = line[name] if name in line else line["values"]
    return found


def _values(line: Line, name: str) -> dict[Where, float | None]:
    return {
        (attention, layer, head): value
        for attention, layers in _layers(line, name).items()
        for layer, heads in layers.items()
        for head, value in enumerate(heads)
    }


def _learned(
    courses: Mapping[Where, Sequence[float | None]],
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """The first and the last value of what is learned, by attention."""
    alone = _values_alone(courses)
    start: dict[str, list[float]] = {}
    end: dict[str, list[float]] = {}
    seen = set()
    for where, course in courses.items():
        first, last = course[0], course[-1]
        is_copy = where in alone and tuple(course) in seen
        if first is None or last is None or is_copy or (len(course) > 1 and len(set(course)) == 1):
            continue
        if where in alone:
            seen.add(tuple(course))  # layers that share a value each have it in the record
        start.setdefault(where[0], []).append(first)
        end.setdefault(where[0], []).append(last)
    return start, end


def _values_alone(courses: Mapping[Where, Any]) -> set[Where]:
    """Where a layer has a single value, which it may share with others."""
    heads: dict[tuple[str, str], int] = {}
    for attention, layer, _ in courses:
        heads[attention, layer] = heads.get((attention, layer), 0) + 1
    return {where for where in courses if heads[where[0], where[1]] == 1}


def _joined(values: Mapping[str, Sequence[float]]) -> list[float]:
    return [value for own in values.values() for value in own]


def _is_within(
    recorded: Mapping[Where, float | None], present: Mapping[Where, float | None], way: float
) -> bool:
    """Whether no head is further away than that, and what files round away."""
    for where, own in present.items():
        other = recorded[where]
        if own is None or other is None:
            if own is not other:
                return False
        elif abs(other - own) > way + 1e-4 * max(1.0, abs(own)):
            return False
    return True


def as_text(result: StartAndEnd) -> str:
    """One line for a table."""
    title = f"{TITLE}, updates {result.first_update} to {result.last_update}: "
    if result.of_model is None:
        return f"{title}none, as {result.reason()}"
    of_attentions = ", ".join(
        f"{attention} {'-' if value is None else f'{value:.2f}'}"
        for attention, value in result.of_attentions.items()
    )
    text = f"{title}{result.of_model:.2f} ({of_attentions})"
    number, value = result.together()
    if number > result.heads / 2:
        text += f"; {number} of {result.heads} end alike, at {value:.4g}"
    return text
