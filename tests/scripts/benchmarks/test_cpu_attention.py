"""The benchmark of attention on a CPU: what it compares is right, and it prints what it measures."""

import argparse
import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from tests.kernels.native.support import needs_compiler

pytestmark = needs_compiler
FILE = Path(__file__).parents[3] / "scripts" / "benchmarks" / "cpu_attention.py"


@pytest.fixture
def benchmark():
    spec = importlib.util.spec_from_file_location("cpu_attention", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("smooth", [False, True])
def test_what_is_measured_is_attention_and_sparse(benchmark, smooth):
    options = argparse.Namespace(alpha=1.6, smooth=smooth, rounds=2)
    row = benchmark.measure("2x2x40x16", 3.0, options)
    assert row["error"] <= 1e-5
    assert 0 < row["density"] < 0.5
    # A key and a probability for each of the support, and where the rows begin
    assert row["kept"] == pytest.approx(2 * row["density"] + 2 / 40, abs=0.02)
    assert row["both ratio sdpa"] == 1.0
    assert row["both ms here"] > 0


def test_it_prints_and_writes_every_shape(benchmark, monkeypatch, capsys, tmp_path):
    file = tmp_path / "rows.json"
    words = ["cpu_attention.py", "--shapes", "1x1x8x8", "--rounds", "1", "--threads", "1"]
    monkeypatch.setattr(sys, "argv", [*words, "--spreads", "1", "2", "--json", str(file)])
    threads = torch.get_num_threads()
    try:
        benchmark.main()
    finally:
        torch.set_num_threads(threads)
    said = capsys.readouterr().out
    assert said.count("1x1x8x8") == 4
    assert [row["spread"] for row in json.loads(file.read_text())] == [1.0, 2.0]
