"""Kills jobs of every kind at random times and runs each again until it is done.

    scripts/soak.sh --kills 100 --seed 1

The final results are compared with those of a job that was never stopped: they must be the same
files with the same bytes, except for measured times; checkpoints must have the same numbers. Works
on a CPU, with few pairs of the shipped corpus and tiny models. Exits with 1 if anything differs, is
left over, or fails, and says what; the folder of such a job stays in DIR.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import lzma
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = {
    "RECIPE": str(ROOT / "examples" / "bible_es_en"),
    "TRIAL_PAIRS": "240,16,12",
    "GENERATION_OPTIONS": "--max-len-b 20",
    "OMP_NUM_THREADS": "1",
}
RUN = "--cpu --updates 24 --output . entmax"
TINY = " ".join(
    f"--{side}-{size}"
    for side in ("encoder", "decoder")
    for size in ("layers=2", "embed-dim=32", "ffn-embed-dim=32", "attention-heads=4")
)
MODEL = "runs/*/checkpoints/checkpoint_best.pt"
DATA = f"data-bin --path {MODEL} --source-lang es --target-lang en --gen-subset test --cpu"


class Kind(NamedTuple):
    """A kind of job: the bash command run in its folder, which starts as a copy of `after`'s."""

    command: str
    after: str | None = None


KINDS = {
    "prepare": Kind('"$RECIPE/prepare.sh" --output .'),
    "train": Kind(f'"$RECIPE/train.sh" {RUN} {TINY} --save-interval-updates=4', "prepare"),
    "evaluate": Kind(f'"$RECIPE/evaluate.sh" {RUN}', "train"),
    "prune": Kind(
        f"fairseq-entmax prune {MODEL} --output small.pt --overwrite "
        "--heads 'encoder-self:0.1;cross:1.2'",
        "train",
    ),
    "analyze": Kind(
        f"fairseq-entmax analyze {DATA} --num-workers 0 --output . --overwrite --sentences=0 "
        "--relevance-sentences=2 --gradient-sentences=2",
        "train",
    ),
    "report": Kind(
        "fairseq-entmax report analysis.json --output report.html --figures figures "
        "--formats svg --overwrite",
        "analyze",
    ),
    "ablate": Kind(
        f"fairseq-entmax ablate {DATA} --num-workers 0 --output ablation --scores loss,bleu "
        "--beam 1 --max-len-b 10 --trials 50",
        "train",
    ),
    "oov": Kind(
        "for n in {1..400}; do cat text/train.es; done >words.txt && fairseq-entmax oov vocabulary "
        "--text words.txt --words 400 --markers 20 --output vocab.txt --overwrite && fairseq-entmax "
        "oov mark --source words.txt --target words.txt --vocab vocab.txt --overwrite "
        "--output-source marked.source --output-target marked.target",
        "prepare",
    ),
    "claims": Kind(
        '"$RECIPE/claims.sh" --quick --cpu --jobs 2 --models softmax --sizes small --output .'
    ),
}
# Logs grow with each attempt; locks are no results
NOT_COMPARED = re.compile(r"(^|/)logs/|\.log$|(^|/)\.lock$")
HALF = re.compile(r"\.tmp(/|\d*$)|\.old(/|$)|\.extracted")
# Fields of a record with measured seconds, or on when and with what it was made
OF_TIME = {"date", "commit"}
# Files that depend on measured seconds; stamps have checksums of such files
BY_TIME = re.compile(r"(^|/)(speed\.json|claims\.md)|(^|/)\.[^/]*\.done$")
# The most kills of a job before it may run to its end
MOST_KILLS = 4


class Failed(Exception):
    """A job failed without being killed."""


def start(kind: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a job in its own session, which can be killed as a whole."""
    with folder.with_name(f"{folder.name}.log").open("ab") as log:
        return subprocess.Popen(
            ["bash", "-ceu", KINDS[kind].command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **SETTINGS},
            start_new_session=True,
        )


def finish(process: subprocess.Popen[bytes], folder: Path, timeout: float | None = None) -> None:
    if process.wait(timeout):
        raise Failed(f"failed without being killed: see {folder}.log")


def kill(process: subprocess.Popen[bytes], folder: Path) -> None:
    """Kill a session by SIGKILL, and wait until all its processes are gone."""
    while living := members(process.pid):
        for number in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        time.sleep(0.01)
    process.wait()
    for path in folder.rglob(".lock"):  # held by processes in other sessions, which a guard ends
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)


def members(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError):
            state, _, _, of = path.read_text().rpartition(") ")[2].split()[:4]
            if int(of) == session and state != "Z":
                found.append(int(path.parent.name))
    return found


class Soak:
    """Jobs in a folder; ``whole/`` has the result of each kind of job without a kill."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.seconds: dict[str, float] = {}
        shutil.rmtree(output / "whole", ignore_errors=True)
        shutil.rmtree(output / "killed", ignore_errors=True)

    def begin(self, kind: str, folder: Path) -> None:
        folder.mkdir(parents=True)
        if after := KINDS[kind].after:
            shutil.copytree(self.whole(after), folder, dirs_exist_ok=True)

    def whole(self, kind: str) -> Path:
        """The folder of an undisturbed job, which is run once."""
        folder = self.output / "whole" / kind
        if kind not in self.seconds:
            self.begin(kind, folder)
            began = time.monotonic()
            finish(start(kind, folder), folder)
            self.seconds[kind] = time.monotonic() - began
            print(f"{kind}: {self.seconds[kind]:.1f} s undisturbed", flush=True)
        return folder

    def job(self, number: int, kind: str, seed: int) -> tuple[str, int, list[str]]:
        """Kill a job several times, let it end, compare; return kind, kills and differences."""
        folder = self.output / "killed" / f"{number}-{kind}"
        self.begin(kind, folder)
        chance, kills = random.Random(seed), 0
        try:
            for _ in range(chance.randint(1, MOST_KILLS)):
                process = start(kind, folder)
                try:
                    # Sometimes a little after its end
                    finish(process, folder, chance.uniform(0, 1.1 * self.seconds[kind]))
                except subprocess.TimeoutExpired:
                    kill(process, folder)
                    kills += 1
            finish(start(kind, folder), folder)
            found = differences(self.whole(kind), folder)
        except Failed as error:
            found = [str(error)]
        print(f"{folder.name}: {kills} kills, {len(found)} differences", flush=True)
        if not found:
            shutil.rmtree(folder)
            Path(f"{folder}.log").unlink()
        return kind, kills, [f"{folder.name}, killed {kills} times: {line}" for line in found]


def differences(expected: Path, found: Path) -> list[str]:
    """How the folder of a job that was killed differs from that of one that was not."""
    names, others = (set(_files(folder)) for folder in (expected, found))
    problems = [f"{name} is missing" for name in sorted(names - others)]
    problems += [f"{name} should not exist" for name in sorted(others - names)]
    for name in sorted(names & others):
        if not BY_TIME.search(name) and _content(expected, name) != _content(found, name):
            problems.append(f"{name} has different content")
    every = (path.relative_to(found).as_posix() for path in found.rglob("*"))
    return problems + [f"{name} was left over" for name in sorted(every) if HALF.search(name)]


def _files(folder: Path) -> list[str]:
    names = (path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    return [name for name in names if not NOT_COMPARED.search(name) and not HALF.search(name)]


def _content(folder: Path, name: str) -> Any:
    """The content of a file, without the folder's path and measured times."""
    path = folder / name
    if path.suffix == ".pt":
        return list(_learned(path))
    content = path.read_bytes()
    if path.suffix == ".xz":
        content = lzma.decompress(content)
    content = content.replace(str(folder).encode(), b"")
    # A checkpoint's bytes depend on when it was made
    content = re.sub(rb'"checkpoint_sha256": "\w+"', b'"checkpoint_sha256": ""', content)
    is_record = path.suffix == ".xz" or path.name == "record.json"
    return _lasting(json.loads(content)) if is_record else content


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(each) for key, each in value.items() if key not in OF_TIME}
    return [_lasting(each) for each in value] if isinstance(value, list) else value


def _learned(path: Path) -> Any:
    """What training made in a checkpoint: every number of the model and the optimizer."""
    import torch

    from fairseq_entmax.checkpoints import load_checkpoint

    state = load_checkpoint(str(path))
    history = (state.get("optimizer_history") or [])[-1:]  # a resumed training adds an entry
    leaves, _ = torch.utils._pytree.tree_flatten(
        [state["model"], state.get("last_optimizer_state"), history]
    )
    for leaf in leaves:  # as bytes, in which NaN equals itself
        yield leaf.numpy().tobytes() if isinstance(leaf, torch.Tensor) else leaf


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="soak.sh", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="approximate number (default: 100)")
    parser.add_argument("--seed", type=int, default=1, help="seed of times and order (default: 1)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    parser.add_argument("--jobs", type=int, default=2, help="jobs at a time (default: 2)")
    parser.add_argument("--output", type=Path, default=ROOT / "soak", metavar="DIR")
    options = parser.parse_args()
    soak, chance = Soak(options.output.resolve()), random.Random(options.seed)
    for kind in options.kinds:
        soak.whole(kind)
    began, number, order = time.monotonic(), 0, list[str]()
    kills: Counter[str] = Counter()
    problems: list[str] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        while kills.total() < options.kills and len(problems) < 20:
            together = []
            for _ in range(options.jobs):
                order = order or chance.sample(options.kinds, len(options.kinds))
                number += 1
                seed = chance.getrandbits(64)
                together.append(pool.submit(soak.job, number, order.pop(), seed))
            for job in together:
                kind, made, found = job.result()
                kills[kind] += made
                problems += found
    for line in problems:
        print(line, file=sys.stderr)
    by_kind = ", ".join(f"{kind} {kills[kind]}" for kind in options.kinds)
    print(
        f"{kills.total()} kills ({by_kind}) of {number} jobs in {time.monotonic() - began:.0f} s, "
        f"seed {options.seed}: {len(problems)} differences"
    )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
