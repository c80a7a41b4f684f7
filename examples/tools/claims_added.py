"""Adding to a record of claims.sh that was made elsewhere, or whose models are gone.

What the record has is kept as it is: its runs are not trained again, and what earlier calls took
stays in its account.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from jobs import Job
from messages import UsageError

LISTS = ("seeds", "more_seeds", "corpora", "models", "sizes")
SAME = ("epochs", "patience")  # of which a record has one kind


def left_to_do(jobs: Sequence[Job], record: Path) -> list[Job]:
    """The jobs that have to run for what the record has not, in their order.

    Args:
        jobs: a whole plan; those that write to the record have their files of it as products.
        record: its folder.
    """
    by_name = {job.name: job for job in jobs}

    def is_recorded(job: Job) -> bool:
        return bool(job.products) and all(
            path.is_relative_to(record) and path.exists() for path in job.products
        )

    wanted: set[str] = set()

    def want(job: Job) -> None:
        if job.name not in wanted:
            wanted.add(job.name)
            for name in job.after:
                want(by_name[name])

    for job in jobs:
        if any(path.is_relative_to(record) for path in job.products) and not is_recorded(job):
            want(job)
    kept: list[Job] = []
    for job in jobs:
        # A table between seeds, of the runs that are made now
        tells = not job.products and any(name in wanted for name in job.after)
        if job.name in wanted or tells:
            kept.append(replace(job, after=tuple(name for name in job.after if name in wanted)))
    return kept


def check_addable(about: Mapping[str, Any], asked: Mapping[str, Any], record: Path) -> None:
    """Do nothing where what is asked for can stand beside what a record has.

    Args:
        about: what the record says of itself.
        asked: the same of this call.

    Raises:
        UsageError: its models were trained for another time.
    """
    for name in SAME:
        if about.get(name) != asked[name]:
            was = "the recipe's" if about.get(name) is None else about[name]
            now = "the recipe's" if asked[name] is None else asked[name]
            raise UsageError(
                f"option --add: the models of {record} were trained with {name} {was}, and this call "
                f"has {now}: give the same --{name}, or another --record"
            )


def together(about: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says of itself when a call has added to it.

    Args:
        about: what it said before.
        now: of the call, in which the history is of this output folder alone.
    """
    lists = {name: _joined(about.get(name) or [], now[name]) for name in LISTS}
    calls = {one["call"] for one in now["history"]}
    earlier = [one for one in about.get("history", []) if one.get("call") not in calls]
    return {**now, **lists, "history": [*earlier, *now["history"]]}


def _joined(first: Iterable[Any], second: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys([*first, *second]))
