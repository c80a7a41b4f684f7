"""Kills jobs at random times and looks at what they make in the end; see scripts/soak.sh."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from kinds import KINDS, TRIAL, Base, Kind, differences
from messages import UsageError, one_sentence, say

# Kills of a job, one after the other, before it is let go to its end
MOST_KILLS = 4
# It may be killed up to this part behind the time that it takes undisturbed: then it has ended
BEHIND = 1.1
# Seconds that a job may take undisturbed, and for what was killed to be gone
PATIENCE, GONE = 1800, 60


class DoesNotEnd(ValueError):
    """A job that failed without being killed, or that was stuck."""


def begin(words: tuple[str, ...], folder: Path, log: Path) -> subprocess.Popen[bytes]:
    """A command in a session of its own, which is killed as a whole."""
    environment = {**os.environ, **TRIAL, "OMP_NUM_THREADS": "1"}
    with log.open("ab") as out:
        return subprocess.Popen(
            [str(folder) if word == "@" else word for word in words],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def members(session: int) -> list[int]:
    """The processes of a session that live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            state, _, _, of = path.read_text().rpartition(") ")[2].split()[:4]
            if int(of) == session and state != "Z":
                found.append(int(path.parent.name))
    return found


def kill(process: subprocess.Popen[bytes], folder: Path) -> bool:
    """Kill a session by SIGKILL, and wait until all of it is gone; whether it was alive."""
    was_alive = process.poll() is None
    deadline = time.monotonic() + GONE
    while living := members(process.pid):
        if time.monotonic() > deadline:
            raise DoesNotEnd(f"processes that were killed are still there: {living}")
        for number in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.01)
    process.wait()
    for path in folder.rglob(".lock"):  # of what has a session of its own, and is ended by a guard
        with path.open() as file:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                if time.monotonic() > deadline:
                    raise DoesNotEnd(f"{path} is still held by what was killed")
                time.sleep(0.05)
    return was_alive


def run(kind: Kind, folder: Path) -> None:
    """Run a job to its end.

    Raises:
        DoesNotEnd: it failed; its log is in the message.
    """
    log = folder.with_name(f"{folder.name}.log")
    for words in kind.commands:
        process = begin(words, folder, log)
        try:
            status = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            kill(process, folder)
            raise DoesNotEnd(f"{kind.name} did not end in {PATIENCE} seconds: see {log}") from None
        if status:
            raise DoesNotEnd(f"{kind.name} failed with status {status}: see {log}")


@dataclass
class Soak:
    """Kills, and what came of them.

    Attributes:
        left: kills that are still to be made.
        until: by the clock when the last may begin.
        made: kills of each kind; jobs: jobs of each kind that ended; told: what differs.
    """

    output: Path
    left: int
    until: float
    base: Base
    took: dict[str, float] = field(default_factory=dict)
    made: Counter[str] = field(default_factory=Counter)
    jobs: Counter[str] = field(default_factory=Counter)
    told: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def expected(self, kind: Kind) -> Path:
        return self.output / "undisturbed" / kind.name

    def measure(self, kind: Kind) -> None:
        """Run a job that nothing disturbs: what it makes, and how long it takes."""
        folder = self.expected(kind)
        self.base.fill(kind, folder)
        began = time.monotonic()
        run(kind, folder)
        self.took[kind.name] = time.monotonic() - began
        say(f"{kind.name}: {self.took[kind.name]:.1f} s undisturbed")

    def may_kill(self) -> bool:
        with self.lock:
            if self.left <= 0 or time.monotonic() >= self.until:
                return False
            self.left -= 1
            return True

    def job(self, number: int, kind: Kind, chance: random.Random) -> None:
        """Kill a job some times, let it end, and compare."""
        folder = self.output / "killed" / f"{number}-{kind.name}"
        self.base.fill(kind, folder)
        log, kills = folder.with_name(f"{folder.name}.log"), 0
        try:
            for _ in range(chance.randint(1, MOST_KILLS)):
                if not self.may_kill():
                    break
                delay = chance.uniform(0, BEHIND * self.took[kind.name])
                if self._disturb(kind, folder, log, delay):
                    kills += 1
                else:
                    with self.lock:
                        self.left += 1  # it had ended
            run(kind, folder)
            found = differences(kind, self.expected(kind), folder)
        except DoesNotEnd as error:
            found = [f"{error}"]
        with self.lock:
            self.made[kind.name] += kills
            self.jobs[kind.name] += 1
            self.told += [f"{folder.name}, killed {kills} times: {line}" for line in found]
        say(f"{folder.name}: {kills} kills, {len(found)} differences")
        if not found:
            shutil.rmtree(folder)
            log.unlink()

    def _disturb(self, kind: Kind, folder: Path, log: Path, delay: float) -> bool:
        """Run a job's commands, and kill what runs after a while; whether anything was."""
        end = time.monotonic() + delay
        for words in kind.commands:
            process = begin(words, folder, log)
            with contextlib.suppress(subprocess.TimeoutExpired):
                if process.wait(max(0.0, end - time.monotonic())):
                    raise DoesNotEnd(f"{kind.name} failed when it was run again: see {log}")
                continue
            return kill(process, folder)
        return False


def soak(options: argparse.Namespace) -> int:
    """Do all of it; the exit status."""
    kinds = [KINDS[name] for name in options.kinds]
    shutil.rmtree(options.output / "killed", ignore_errors=True)
    shutil.rmtree(options.output / "undisturbed", ignore_errors=True)
    shutil.rmtree(options.output / "base", ignore_errors=True)
    base = Base(options.output / "base", options.output / "undisturbed", run)
    state = Soak(options.output, options.kills, float("inf"), base)
    for kind in kinds:
        state.measure(kind)
    began = time.monotonic()
    if options.seconds:
        state.until = began + options.seconds
    chance = random.Random(options.seed)
    with ThreadPoolExecutor(options.jobs) as pool:
        number, order, running = 0, list[Kind](), set()
        while state.left > 0 and time.monotonic() < state.until and len(state.told) < 20:
            while len(running) < options.jobs:
                if not order:
                    order = chance.sample(kinds, len(kinds))
                number += 1
                each = random.Random(chance.getrandbits(64))
                running.add(pool.submit(state.job, number, order.pop(), each))
            time.sleep(0.1)
            for done in [future for future in running if future.done()]:
                running.discard(done)
                done.result()
    for line in state.told:
        print(line, file=sys.stderr)
    kinds_told = ", ".join(f"{name} {state.made[name]}" for name in options.kinds)
    say(
        f"{state.made.total()} kills ({kinds_told}) of {state.jobs.total()} jobs in "
        f"{time.monotonic() - began:.0f} s, seed {options.seed}: {len(state.told)} differences"
    )
    return 1 if state.told else 0


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--kinds", type=lambda text: text.split(","), default=list(KINDS))
    options = parser.parse_args(arguments)
    with one_sentence():
        if not options.seed.isdecimal():
            raise UsageError(f"option --seed got '{options.seed}': give a whole number, such as 2")
        options.seed = int(options.seed)
        for name in options.kinds:
            if name not in KINDS:
                raise UsageError(f"option --kinds got '{name}': give some of {','.join(KINDS)}")
        sys.exit(soak(options))


if __name__ == "__main__":
    main()
