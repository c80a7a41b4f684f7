"""Whether what heads learned, such as alpha, still follows the numbers that they started from.

In a new model alpha starts at random. Where its heads end in the order in which they were drawn, a
head with a high alpha is not one that has found that it should be sparse. Spearman's correlation of the ranks at the
start and at the end says how far it is so: 1 is the same order, 0 says nothing of the start is left.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TITLE = "rank correlation of start and end"
# With two heads the correlation is 1 or -1 whatever happened
LEAST_HEADS = 3

Line = Mapping[str, Any]
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

    def reason(self) -> str:
        """Why there is no correlation of the whole model; empty where there is one."""
        if self.of_model is not None:
            return ""
        if self.first_update == self.last_update:
            return f"the record has one line, of update {self.first_update}"
        if self.heads < LEAST_HEADS:
            return f"{self.heads} learn it, and {LEAST_HEADS} are needed"
        where = "start" if len(set(_joined(self.start))) == 1 else "end"
        return f"all {self.heads} {where} alike, at {_joined(getattr(self, where))[0]:g}"


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
        spearman(_joined(start), _joined(end)) if has_two else None,
        {at: spearman(own, end[at]) if has_two else None for at, own in start.items()},
    )


def of_checkpoint(
    path: str, name: str, update: int | None, present: Mapping[str, Mapping[str, Sequence[Any]]]
) -> StartAndEnd:
    """The same for a checkpoint, from the record beside it.

    Args:
        path: of the checkpoint.
        name: the kind of value.
        update: of the checkpoint; None where it does not say.
        present: what the checkpoint has: attention to layer to the values of its heads.

    Raises:
        FileNotFoundError: there is no record beside it.
        ValueError: as :func:`rank_correlation`; the record is of other heads, or has other values
            at that update.
    """
    from fairseq_entmax.models.head_record import record_path

    file = record_path(Path(path).parent, name)
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no {file.name} beside the checkpoint, which training writes unless "
            f"--alpha-log-interval is 0"
        )
    result = rank_correlation(file, name, update)
    lines = [line for line in _read(file, name) if line["update"] == result.last_update]
    recorded, own = _values(lines[-1], name), _values({name: present}, name)
    if set(recorded) != set(own):
        raise ValueError(f"{file} is of other heads, as before pruning")
    is_same_update = update is None or result.last_update == update
    if is_same_update and any(not _is_close(recorded[where], own[where]) for where in own):
        raise ValueError(
            f"{file} has other values at update {result.last_update}: it is of another training, or "
            f"the checkpoint is a mean of several"
        )
    return result


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


def _ranks(numbers: Sequence[float]) -> list[float]:
    order = sorted(numbers)
    return [order.index(number) + (order.count(number) - 1) / 2 for number in numbers]


def _values(line: Line, name: str) -> dict[Where, float | None]:
    layers_of = line[name] if name in line else line["values"]
    return {
        (attention, layer, head): value
        for attention, layers in layers_of.items()
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


def _is_close(recorded: float | None, own: float | None) -> bool:
    if recorded is None or own is None:
        return recorded is own
    return abs(recorded - own) <= 1e-4 * max(1.0, abs(own))


def as_text(result: StartAndEnd) -> str:
    """One line for a table."""
    title = f"{TITLE}, updates {result.first_update} to {result.last_update}: "
    if result.of_model is None:
        return f"{title}none, as {result.reason()}"
    of_attentions = ", ".join(
        f"{attention} {'-' if value is None else f'{value:.2f}'}"
        for attention, value in result.of_attentions.items()
    )
    return f"{title}{result.of_model:.2f} ({of_attentions})"
