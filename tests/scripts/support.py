"""Loading scripts as modules."""

import importlib
import sys
from pathlib import Path

import torch

from fairseq_entmax import kernels

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "scripts" / "benchmarks"


def load(name, monkeypatch):
    """Import a script or a benchmark as a module; the modules that it imports lie beside it."""
    monkeypatch.setenv(kernels.VARIABLE, kernels.AUTO)  # restored after a benchmark has changed it
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    for folder in (ROOT / "scripts", BENCHMARKS):
        monkeypatch.syspath_prepend(folder)
    return importlib.import_module(name)


def run(name, monkeypatch, *words):
    """Run a benchmark in this process with the given arguments."""
    benchmark = load(name, monkeypatch)
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *map(str, words)])
    benchmark.main()
