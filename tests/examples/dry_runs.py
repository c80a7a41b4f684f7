"""Recipes in a dry run: their scripts, on miniature archives, with stubs for what fairseq does."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests import preloaded

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STUB = Path(__file__).with_name("stub.py")
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
COMMANDS = ("preprocess", "train", "generate", "eval-lm", "entmax")
# Programs that import torch
OF_TORCH = rf"{preloaded.OF_TORCH}|*pruned_generation.py*|*-m\ claims*|*claims_speed.py*"


def run(
    recipe: str, script: str, *arguments: object, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        [EXAMPLES / recipe / script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )
    assert not check or result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result


class DryRun:
    """A folder with stubs, and what they were called with."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.log = folder / "bin", folder / "calls"
        self.bin.mkdir(parents=True)
        for name in [*(f"fairseq-{one}" for one in COMMANDS), "sacrebleu", "torchrun"]:
            self._write(name, self._stub(name))
        python = (
            f'case "$*" in {OF_TORCH}) {self._stub("python3")} ;; esac; exec {sys.executable} "$@"'
        )
        self._write("python3", python)

    def _stub(self, name: str) -> str:
        return f'exec {sys.executable} -I -S {STUB} {self.log} {name} "$@"'

    def _write(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (self.bin / name).chmod(0o755)

    def __call__(self, *command: Any, **further: Any) -> str:
        """What a script prints; ``further`` is of its environment."""
        result = run(*command, PATH=f"{self.bin}:{PATH}", **further)
        return result.stdout + result.stderr

    def calls(self) -> list[list[str]]:
        """The commands and their arguments, in their order, since the last time."""
        if not self.log.exists():
            return []
        found = [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]
        self.log.unlink()
        return found


def kill_when(begun: Callable[[], object], command: list[object], env: dict[str, str]) -> None:
    """Start a command, and kill it and what it started when something has begun."""
    process = subprocess.Popen(
        list(map(str, command)),
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 600
    while not begun():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # torchrun gives its processes sessions of their own
    listed = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True)
    parents = dict(map(int, line.split()) for line in listed.stdout.splitlines())
    family = {process.pid}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    os.killpg(process.pid, signal.SIGKILL)
    for pid in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()
