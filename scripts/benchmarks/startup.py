"""How long the commands and imports take before they do anything, and what they import.

    python scripts/benchmarks/startup.py [--rounds 5] [--commit HEAD~20]

Each command runs in a process of its own; the contenders take turns, several rounds. The table has
medians of seconds, the modules of torch and fairseq that were imported, and how many lines were
printed to standard error. With ``--commit`` another commit of this repository, in a work tree that
is made for it and removed, is measured beside this one.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mapping import rotated

ROOT = Path(__file__).resolve().parents[2]
COMMAND = "import sys; from fairseq_entmax.cli import main; sys.exit(main(sys.argv[1:]))"
CONTENDERS = {
    "python alone": "pass",
    "import torch": "import torch",
    "import fairseq_entmax.mappings": "import fairseq_entmax.mappings",
    "import fairseq.models": "import fairseq.models",
    "import fairseq_entmax.models": "import fairseq_entmax.models",
    "fairseq-entmax user-dir": ["user-dir"],
    "fairseq-entmax --help": ["--help"],
    "fairseq-entmax analyze --help": ["analyze", "--help"],
    "fairseq-entmax prune, wrong option": ["prune", "--nonsense"],
    "fairseq-entmax alpha, no such file": ["alpha", "absent.pt"],
}
COUNT = """
import atexit, sys
def count():
    names = [name.partition(".")[0] for name in sys.modules]
    print("@", names.count("torch"), names.count("fairseq"))
atexit.register(count)
"""


def measure(tree: Path, contender: str | list[str]) -> tuple[float, int, int, int]:
    """Seconds, modules of torch, modules of fairseq, and lines on standard error."""
    code, arguments = (contender, []) if isinstance(contender, str) else (COMMAND, contender)
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, check=False
    )
    seconds = time.perf_counter() - start
    result = subprocess.run(
        [sys.executable, "-c", COUNT + code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    torch, fairseq = result.stdout.rpartition("@")[2].split()
    return seconds, int(torch), int(fairseq), len(result.stderr.splitlines())


@contextlib.contextmanager
def work_trees(commit: str | None) -> Iterator[dict[str, Path]]:
    """This tree, and that of the commit while the context lasts."""
    if commit is None:
        yield {"": ROOT}
        return
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(other), commit], check=True)
        try:
            yield {f"{commit}: ": other, "now: ": ROOT}
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--commit", metavar="COMMIT", help="another commit to measure beside")
    options = parser.parse_args()
    with work_trees(options.commit) as trees:
        cases = [
            (prefix + name, tree, contender)
            for name, contender in CONTENDERS.items()
            for prefix, tree in trees.items()
        ]
        results: dict[str, list[tuple[float, int, int, int]]] = {name: [] for name, _, _ in cases}
        for turn in range(options.rounds):
            for name, tree, contender in rotated(cases, turn):
                results[name].append(measure(tree, contender))
    width = max(map(len, results))
    print(f"{'':{width}}  seconds  torch  fairseq  lines on stderr")
    for name, rounds in results.items():
        seconds = statistics.median(one[0] for one in rounds)
        print(
            f"{name:{width}}  {seconds:7.2f}  {rounds[0][1]:5}  {rounds[0][2]:7}  {rounds[0][3]:15}"
        )


if __name__ == "__main__":
    main()
