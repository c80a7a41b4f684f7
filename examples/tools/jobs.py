"""Many commands with dependencies, several at once, which can be stopped at any time and gone on with.

A `Job` is a command. `Pool` runs those whose dependencies are done, as many at once as it may, in
the order in which they are listed, and keeps in its folder:

    logs/JOB.log       what the command printed, at every attempt
    done/JOB           stamp of a job that succeeded, from its settings and those of its dependencies
    calls/N.json       of each call that had something to do: seconds, and seconds of processors

A job runs in a process group of its own, and a guard beside the pool (`jobs.py guard`) ends these
groups where the pool itself was killed, so that nothing goes on that nobody waits for.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from groups import Guard, cpu_seconds_of, end_groups
from messages import say

PAUSE = 0.1  # seconds between two looks at the jobs at work
SAMPLE = 10.0  # seconds between two readings of what they have taken
LAST_LINES = 20  # of the log of a failed job
STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Job:
    """A command, and when it is done.

    Attributes:
        name: its own among the jobs, with ``/`` between its parts.
        command: program and arguments.
        after: names of the jobs that have to be done before.
        environment: variables beside those of the pool.
        settings: what the outcome depends on beside command, environment and dependencies.
        products: files without which it is not done.
        alone: nothing else runs beside it, and everything else that can run goes before.
        attempts: folder for a file of each attempt, with its seconds of processors.
        worked: file that an attempt changes; one that leaves it as it was found everything done,
            and is none.
        at_once: nothing else begins from when it can until it has run; with `alone`, what is at work
            then is waited for.
    """

    name: str
    command: tuple[str, ...]
    after: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    settings: str = ""
    products: tuple[Path, ...] = ()
    alone: bool = False
    attempts: Path | None = None
    worked: Path | None = None
    at_once: bool = False


@dataclass
class Attempt:
    """A job at work."""

    job: Job
    process: subprocess.Popen[bytes]
    began: float  # of the clock time.monotonic
    name: str
    cpu_seconds: float = 0.0
    before: int | None = None  # when job.worked had been written before, in nanoseconds


@dataclass
class Outcome:
    """How the jobs ended, by their names.

    Attributes:
        done: now or in an earlier call.
        ran: of these, those that this call ran.
        failed: of which the command failed.
        left: that were not begun, as what they need failed, or the pool was stopped.
        signal: that stopped the pool; None where it came to its end.
    """

    done: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    signal: int | None = None


def clock(seconds: float) -> str:
    """Such as 1:02:03."""
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, path)


def clear_leftovers(folder: Path) -> None:
    """Remove what :func:`write_whole` left unfinished in a folder when its process was killed."""
    for leftover in folder.glob("*.tmp"):
        leftover.unlink(missing_ok=True)


def written_at(path: Path | None) -> int | None:
    """When a file was last written, in nanoseconds; None where there is none."""
    return path.stat().st_mtime_ns if path is not None and path.exists() else None


def spent(folder: Path, key: str = "cpu_seconds") -> float:
    """The sum of a number over the files of a folder: of attempts, or of calls."""
    return sum(json.loads(path.read_text("utf-8"))[key] for path in sorted(folder.glob("*.json")))


def fingerprints(jobs: Sequence[Job]) -> dict[str, str]:
    """Of each job, a text that changes with its settings and with those of what it needs.

    Raises:
        ValueError: two have one name, or one needs a job that is not listed before it.
    """
    known: dict[str, str] = {}
    for job in jobs:
        if job.name in known:
            raise ValueError(f"the job {job.name} is there twice")
        unknown = [name for name in job.after if name not in known]
        if unknown:
            raise ValueError(
                f"the job {job.name} needs {unknown[0]}, which does not stand before it"
            )
        content = [job.command, sorted(job.environment.items()), job.settings]
        needs = [known[name] for name in job.after]
        known[job.name] = hashlib.sha256(json.dumps([content, needs]).encode()).hexdigest()
    return known


class Pool:
    """Runs jobs.

    Args:
        jobs: in the order in which they are begun where they can be; each behind those it needs.
        folder: for logs and stamps.
        most: how many run at once, 1 or more.
        tell: prints a line.
        about: what is kept with the seconds of each attempt, and of the call.

    Raises:
        ValueError: as `fingerprints`.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        folder: Path,
        most: int,
        tell: Callable[[str], None] = say,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.jobs, self.folder, self.most, self.tell = list(jobs), folder, most, tell
        self.about = dict(about or {})
        self.prints = fingerprints(jobs)
        self.running: list[Attempt] = []
        self._looked_at: dict[str, bool] = {}  # of jobs, whether an earlier call did them
        self.outcome = Outcome()
        self.began = time.monotonic()
        self.cpu_seconds = 0.0  # of the attempts that have ended
        self.stopped: int | None = None
        self._call = folder / "calls" / f"{time.time_ns()}.json"

    # --- what was done before ---------------------------------------------------------

    def stamp(self, job: Job) -> Path:
        return self.folder / "done" / job.name.replace("/", ".")

    def log(self, job: Job) -> Path:
        return self.folder / "logs" / f"{job.name.replace('/', '.')}.log"

    def was_done(self, job: Job) -> bool:
        """Tell whether an earlier call did the job, and this one none that it needs."""
        if any(name in self.outcome.ran for name in job.after):
            return False
        stamp = self.stamp(job)
        return (
            stamp.is_file()
            and stamp.read_text("utf-8").strip() == self.prints[job.name]
            and all(path.exists() for path in job.products)
        )

    # --- running ----------------------------------------------------------------------

    def run(self) -> Outcome:
        """Run what is not done; return how it ended. Signals that stop it end the jobs at work."""
        waiting = list(self.jobs)
        attempts = {job.attempts for job in self.jobs if job.attempts is not None}
        for folder in (self.folder / "done", self.folder / "calls", *attempts):
            clear_leftovers(folder)
        with self._stopped_by_signals(), Guard() as guard:
            sampled = time.monotonic()
            while True:
                self._collect(guard)
                waiting = self._begin(waiting, guard)
                if self.stopped is not None or not (self.running or waiting):
                    break
                if not self.running:
                    continue  # what was done before may have let others begin
                if time.monotonic() - sampled >= SAMPLE:
                    self._sample()
                    sampled = time.monotonic()
                time.sleep(PAUSE)
            if self.stopped is not None:
                self._stop(guard)
        self.outcome.left += [job.name for job in waiting]
        self.outcome.signal = self.stopped
        return self.outcome

    def _begin(self, waiting: list[Job], guard: Guard) -> list[Job]:
        """Begin jobs that can be; return those that still wait."""
        waiting = self._not_done(waiting)
        first = [job for job in waiting if job.at_once and self._needs_are_met(job)]
        # Where nothing else is at work and nothing else can begin, those that run alone can
        for alone in (False, True):
            still: list[Job] = []
            for job in waiting:
                held_up = bool(first) and job not in first
                if held_up or job.alone != alone or not self._can_begin(job):
                    still.append(job)
                else:
                    self._start(job, guard)
            waiting = still
        return waiting

    def _not_done(self, waiting: list[Job]) -> list[Job]:
        """Those of the jobs that an earlier call did not do, and that need none which failed."""
        still: list[Job] = []
        for job in waiting:
            if any(name in (*self.outcome.failed, *self.outcome.left) for name in job.after):
                self.outcome.left.append(job.name)
            elif self._needs_are_met(job) and self._is_done(job):
                self.outcome.done.append(job.name)
            else:
                still.append(job)
        return still

    def _needs_are_met(self, job: Job) -> bool:
        return self.stopped is None and all(name in self.outcome.done for name in job.after)

    def _is_done(self, job: Job) -> bool:
        """As `was_done`, of which it is asked once: what a job needs is done, and stays so."""
        if job.name not in self._looked_at:
            self._looked_at[job.name] = self.was_done(job)
        return self._looked_at[job.name]

    def _can_begin(self, job: Job) -> bool:
        if not self._needs_are_met(job):
            return False
        return len(self.running) < (1 if self._alone(job) else self.most)

    def _alone(self, job: Job) -> bool:
        return job.alone or any(attempt.job.alone for attempt in self.running)

    def _start(self, job: Job, guard: Guard) -> None:
        self._forget(job)
        log = self.log(job)
        log.parent.mkdir(parents=True, exist_ok=True)
        before = written_at(job.worked)
        with log.open("ab") as file:
            process = subprocess.Popen(
                job.command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env={**os.environ, **job.environment},
                start_new_session=True,
                close_fds=False,  # the locks of the caller are the jobs' as well
            )
        guard.watch(process.pid)
        name = f"{time.time_ns()}.json"
        self.running.append(Attempt(job, process, time.monotonic(), name, before=before))
        self._say("started", job)

    def _forget(self, job: Job) -> None:
        """Remove the stamps of a job and of all that depend on it, as what they were made of changes.

        Where one of these is not reached any more, the next call would take it for done.
        """
        gone = {job.name}
        for one in self.jobs:  # each stands behind those that it needs
            if one.name in gone or not gone.isdisjoint(one.after):
                gone.add(one.name)
                self.stamp(one).unlink(missing_ok=True)

    def _say(self, what: str, job: Job) -> None:
        now, ended = clock(time.monotonic() - self.began), self.outcome
        over = len(ended.done) + len(ended.failed) + len(ended.left) + len(self.running)
        waiting = len(self.jobs) - over
        self.tell(f"{now} {what} {job.name}; {len(self.running)} at work, {waiting} waiting")

    # --- jobs that ended --------------------------------------------------------------

    def _collect(self, guard: Guard) -> None:
        """Take account of the jobs that have ended."""
        for attempt in list(self.running):
            process, status, usage = os.wait4(attempt.process.pid, os.WNOHANG)
            if process == 0:
                continue
            end_groups([process], patience=0)  # what it may have left behind
            guard.forget(process)
            self.running.remove(attempt)
            self._account(attempt, status, usage.ru_utime + usage.ru_stime)
            code = os.waitstatus_to_exitcode(status)
            attempt.process.returncode = code
            took = clock(time.monotonic() - attempt.began)
            missing = [path for path in attempt.job.products if not path.exists()]
            if code == 0 and not missing:
                write_whole(self.stamp(attempt.job), f"{self.prints[attempt.job.name]}\n")
                self.outcome.done.append(attempt.job.name)
                self.outcome.ran.append(attempt.job.name)
                self._say(f"done in {took}:", attempt.job)
            elif self.stopped is None:
                self.outcome.failed.append(attempt.job.name)
                self._say(f"FAILED after {took}:", attempt.job)

    def _account(self, attempt: Attempt, status: int | None, seconds: float) -> None:
        """Keep what an attempt has taken so far."""
        attempt.cpu_seconds = max(attempt.cpu_seconds, seconds)
        if status is not None:
            self.cpu_seconds += attempt.cpu_seconds
        job = attempt.job
        worked = job.worked is None or written_at(job.worked) != attempt.before
        if job.attempts is not None and worked:
            taken = round(attempt.cpu_seconds, 2)
            content = {**self.about, "job": job.name, "cpu_seconds": taken}
            write_whole(job.attempts / attempt.name, f"{json.dumps(content)}\n")
        at_work = sum(one.cpu_seconds for one in self.running)
        call = {
            **self.about,
            "seconds": round(time.monotonic() - self.began, 2),
            "cpu_seconds": round(self.cpu_seconds + at_work, 2),
        }
        write_whole(self._call, f"{json.dumps(call)}\n")

    def _sample(self) -> None:
        taken = cpu_seconds_of(attempt.process.pid for attempt in self.running)
        for attempt in self.running:
            self._account(attempt, None, taken.get(attempt.process.pid, 0.0))

    # --- stopping ---------------------------------------------------------------------

    @contextlib.contextmanager
    def _stopped_by_signals(self) -> Iterator[None]:
        def stop(number: int, _: FrameType | None) -> None:
            self.stopped = number

        before: dict[signal.Signals, Any] = {one: signal.signal(one, stop) for one in STOPPING}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)

    def _stop(self, guard: Guard) -> None:
        self._sample()
        self.tell(f"stopping {len(self.running)} jobs; the same command goes on with them")
        stopped = [attempt.job.name for attempt in self.running]
        end_groups([attempt.process.pid for attempt in self.running])
        while self.running:
            self._collect(guard)
            time.sleep(PAUSE)
        self.outcome.left += [name for name in stopped if name not in self.outcome.done]

    # --- telling ----------------------------------------------------------------------

    def report_failures(self) -> None:
        """Print the last lines of the logs of failed jobs, and what was left for that."""
        logs = {job.name: self.log(job) for job in self.jobs}
        for name in self.outcome.failed:
            lines = logs[name].read_text("utf-8", "replace").splitlines()[-LAST_LINES:]
            print(f"--- {name}: the last lines of {logs[name]}", *lines, sep="\n", file=sys.stderr)
