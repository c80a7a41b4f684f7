"""What the tests of the benchmarks share."""

import importlib
import subprocess
import sys
from pathlib import Path

from fairseq_entmax import kernels

FOLDER = Path(__file__).parents[3] / "scripts" / "benchmarks"


def run(name, *arguments):
    """The finished process of a benchmark."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", FOLDER / f"{name}.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def load(name, monkeypatch):
    """A benchmark as a module; those it imports lie beside it."""
    monkeypatch.setenv(kernels.VARIABLE, kernels.AUTO)  # put back after the benchmark changed it
    monkeypatch.syspath_prepend(FOLDER)
    return importlib.import_module(name)
