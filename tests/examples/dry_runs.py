"""Dry runs of recipes: their scripts, on miniature archives, with stubs in the place of fairseq."""

import contextlib
import csv
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
from tests.examples import miniatures

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STUB = Path(__file__).with_name("stub.py")
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
TRIAL = {**miniatures.TRIAL, "VALID_PAIRS": "16", "TEST_PAIRS": "12"}
COMMANDS = ("preprocess", "train", "generate", "eval-lm", "entmax")
# Programs that import torch
OF_TORCH = rf"{preloaded.OF_TORCH}|*pruned_generation.py*|*-m\ claims*"


def run(
    recipe: str, script: str, *arguments: object, check: bool = True, **environment: str
) -> subprocess.CompletedProcess[str]:
    command = [EXAMPLES / recipe / script, *map(str, arguments)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert not check or result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result


class DryRun:
    """A folder with stubs and a log of their calls."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.log = folder / "bin", folder / "calls"
        self.bin.mkdir(parents=True)
        for name in [*(f"fairseq-{one}" for one in COMMANDS), "sacrebleu", "torchrun"]:
            self.write(name, self._stub(name))
        torch = f"{OF_TORCH}) {self._stub('python3')} ;;"
        self.write("python3", f'case "$*" in {torch} esac; exec {sys.executable} "$@"')
        # Merges of a miniature text are learned in a second, but it has fewer than 32,000
        self.write("subword-nmt", f'PATH={PATH!r} exec subword-nmt "${{@/#32000/300}}"')

    def _stub(self, name: str) -> str:
        return f'exec {sys.executable} -I -S {STUB} {self.log} {name} "$@"'

    def write(self, name: str, body: str) -> None:
        (self.bin / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (self.bin / name).chmod(0o755)

    def __call__(self, *command: Any, **further: Any) -> str:
        """The output of a script; ``further`` is added to its environment."""
        result = run(*command, PATH=f"{self.bin}:{PATH}", **further)
        return result.stdout + result.stderr

    def calls(self) -> list[list[str]]:
        """The commands called since the last time, with their arguments, in order."""
        if not self.log.exists():
            return []
        found = [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]
        self.log.unlink()
        return found


def raw(table: Path) -> dict[str, str]:
    return {"RAW_DIR": str(table.parent), "CORPORA": str(table)}


def column(path: Path, name: str = "model") -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row[name] for row in csv.DictReader(file, delimiter="\t")]


def called(calls: list[list[str]], command: str, first: str = "") -> list[str]:
    """The options of each call of a command, in one line."""
    found = [" ".join(words) + " " for name, *words in calls if name == command]
    return [words for words in found if words.startswith(first)]


def asks(call: str, *options: str) -> None:
    assert [one for one in options if f" {one} " not in f" {call}"] == []


class Steps:
    """A recipe in a folder; with ``twice``, each step is repeated, which has to do nothing."""

    def __init__(self, recipe: str, folder: Path, twice: bool = False, **environment: str) -> None:
        self.recipe, self.out, self.dry = recipe, folder / "out", DryRun(folder / "stubs")
        self.twice = twice
        self.environment = {**TRIAL, **environment}

    def once(self, script: str, *arguments: object) -> tuple[list[list[str]], str]:
        command = (self.recipe, script, "--output", self.out, *arguments)
        said = self.dry(*command, **self.environment)
        calls = self.dry.calls()
        if self.twice:
            assert "already done" in self.dry(*command, **self.environment)
            again = {name for name, *_ in self.dry.calls()}
            assert again <= {"python3", "fairseq-entmax"}
        return calls, said

    def prepared(self) -> str:
        command = (self.recipe, "prepare.sh", "--output", self.out, "--check")
        assert "check: all required files were found" in self.dry(*command, **self.environment)
        assert not [path for path in self.out.iterdir() if path.name not in (".lock", "raw")]
        calls, _ = self.once("prepare.sh", "--workers", 1)
        assert not list(self.out.glob("*.tmp"))
        return called(calls, "fairseq-preprocess")[0]

    def trained(self, model: str, *arguments: object) -> str:
        calls, _ = self.once("train.sh", "--cpu", *arguments, model)
        return called(calls, "fairseq-train")[0]

    def evaluated(self, model: str) -> list[list[str]]:
        return self.once("evaluate.sh", "--cpu", model)[0]

    def pruned(self, *arguments: object) -> tuple[list[str], list[str]]:
        """The models in the table, and the calls of fairseq-train."""
        calls, _ = self.once("prune.sh", "--cpu", *arguments)
        return column(self.out / "pruning.tsv"), called(calls, "fairseq-train")

    def pruned_with(self, criterion: str, budget: str = "all=3", *arguments: object) -> None:
        models, trained = self.pruned("--budgets", budget, *arguments)
        name = budget.replace("=", "").replace("-", "x").replace("/", "-")
        assert models == ["baseline", f"{name}-pruned"]
        assert any(f"--criterion {criterion}_with_head_l0 " in call for call in trained)


def kill_when(begun: Callable[[], object], command: list[object], env: dict[str, str]) -> None:
    """Start a command, and kill it with its child processes as soon as ``begun`` is true."""
    words, silent = list(map(str, command)), dict.fromkeys(("stdout", "stderr"), subprocess.DEVNULL)
    process = subprocess.Popen(words, env=env, start_new_session=True, **silent)
    deadline = time.monotonic() + 600
    while not begun():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    # torchrun starts its processes in new sessions
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
