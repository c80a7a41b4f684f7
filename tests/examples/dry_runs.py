"""Recipes in a dry run: their scripts, on miniature archives, with stubs for what fairseq does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests import preloaded

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STUB = Path(__file__).with_name("stub.py")
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
COMMANDS = ("preprocess", "train", "generate", "eval-lm", "interactive", "entmax")
# Programs that import torch
OF_TORCH = rf"{preloaded.OF_TORCH}|*pruned_generation.py*|*-m\ claims*|*claims_speed.py*"


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

    def __call__(
        self, recipe: str, script: str, *arguments: object, check: bool = True, **further: str
    ) -> str:
        """What a script prints; ``further`` is of its environment."""
        result = subprocess.run(
            [EXAMPLES / recipe / script, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            env={**os.environ, "PATH": f"{self.bin}:{PATH}", "OMP_NUM_THREADS": "1", **further},
        )
        assert not check or result.returncode == 0, result.stdout[-3000:]
        return result.stdout

    def calls(self) -> list[list[str]]:
        """The commands and their arguments, in their order, since the last time."""
        if not self.log.exists():
            return []
        found = [json.loads(line) for line in self.log.read_text("utf-8").splitlines()]
        self.log.unlink()
        return found
