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
from messages import UsageError, say

LISTS = ("seeds", "more_seeds", "corpora", "models", "sizes")
SAME = ("epochs", "patience")  # of which a record has one kind


def left_to_do(jobs: Sequence[Job], record: Path) -> list[Job]:
    """The jobs that have to run for what the record has not, in their order.

    What is measured of models of recorded runs, such as speed, is left out, and said, where they
    are not here.

    Args:
        jobs: a whole plan; those that write to the record have their files of it as products.
        record: its folder.
    """
    jobs = list(jobs)
    by_name = {job.name: job for job in jobs}

    def writes(job: Job) -> bool:
        return any(path.is_relative_to(record) for path in job.products)

    def is_recorded(job: Job) -> bool:
        return writes(job) and all(path.exists() for path in job.products)

    def training(job: Job) -> Job:
        """That of a run which was recorded: the first that the run waits for."""
        return by_name[job.after[0]]

    wanted: set[str] = set()

    def want(job: Job) -> None:
        if job.name not in wanted:
            wanted.add(job.name)
            for name in job.after:
                want(by_name[name])

    for number, job in enumerate(jobs):
        if not writes(job) or is_recorded(job):
            continue
        # What is measured of several runs, such as speed, needs the models of those that the record has
        trained = {
            name: training(by_name[name]) for name in job.after if is_recorded(by_name[name])
        }
        gone = [one.name for one in trained.values() if not _has_products(one)]
        if gone:
            say(f"{job.name} is left out, as models are not here any more: {', '.join(gone)}")
            continue
        after = (trained[name].name if name in trained else name for name in job.after)
        jobs[number] = replace(job, after=tuple(after))
        want(jobs[number])
    kept: list[Job] = []
    for job in jobs:
        # A table between seeds, of the runs that are made now
        tells = not job.products and any(name in wanted for name in job.after)
        if job.name in wanted or tells:
            kept.append(replace(job, after=tuple(name for name in job.after if name in wanted)))
    return kept


def _has_products(job: Job) -> bool:
    return all(path.exists() for path in job.products)


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
