"""How long the commands and imports take before they do anything.

    python scripts/benchmarks/startup.py [--rounds 5]

Each command runs in a process of its own; the contenders take turns, several rounds. The table has
medians of seconds.
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


def seconds(name: str, _: int) -> float:
    contender = CONTENDERS[name]
    code, words = (contender, []) if isinstance(contender, str) else (COMMAND, contender)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code, *words]
    start = time.perf_counter()
    subprocess.run(command, env=environment, capture_output=True, check=False)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=positive, default=5, metavar="N")
    times = in_turns([*CONTENDERS], parser.parse_args().rounds, seconds)
    rows = [{"name": name, "seconds": statistics.median(own)} for name, own in times.items()]
    print(table(rows, {"": ("name", ""), "seconds": ("seconds", ".2f")}))


if __name__ == "__main__":
    main()
