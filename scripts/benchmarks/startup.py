"""How long the commands and imports take before they do anything, and what they import.

    python scripts/benchmarks/startup.py [--rounds 5]

Each command runs in a process of its own; the contenders take turns, several rounds. The table has
medians of seconds, the modules of torch and fairseq that were imported, and how many lines were
printed to standard error.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import in_turns, positive, table

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


def measure(name: str, turn: int) -> tuple[float, list[str], int]:
    """Seconds, modules of torch and of fairseq, and lines on standard error."""
    contender = CONTENDERS[name]
    code, words = (contender, []) if isinstance(contender, str) else (COMMAND, contender)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    start = time.perf_counter()
    result = subprocess.run(
        [sys.executable, "-c", COUNT + code, *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    modules = result.stdout.rpartition("@")[2].split()
    return seconds, modules, len(result.stderr.splitlines())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=positive, default=5, metavar="N")
    rows = []
    for name, rounds in in_turns([*CONTENDERS], parser.parse_args().rounds, measure).items():
        (torch, fairseq), lines = rounds[0][1:]
        seconds = statistics.median(one[0] for one in rounds)
        rows.append({"": name, "s": seconds, "torch": torch, "fairseq": fairseq, "lines": lines})
    print(
        table(
            rows,
            {
                "": ("", ""),
                "seconds": ("s", ".2f"),
                "torch": ("torch", ""),
                "fairseq": ("fairseq", ""),
                "lines on stderr": ("lines", ""),
            },
        )
    )


if __name__ == "__main__":
    main()
