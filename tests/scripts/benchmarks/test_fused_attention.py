"""The benchmark of fused attention: what it compares agrees, and it asks for a GPU."""

import argparse
import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from tests.kernels.triton.support import DEVICE

pytest.importorskip("triton")
FILE = Path(__file__).parents[3] / "scripts" / "benchmarks" / "fused_attention.py"


@pytest.fixture
def benchmark(monkeypatch):
    from fairseq_entmax import kernels

    monkeypatch.setenv(kernels.VARIABLE, kernels.AUTO)  # put back after the benchmark changed it
    spec = importlib.util.spec_from_file_location("fused_attention", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("causal", [False, True])
def test_all_contenders_give_the_output_of_float64(benchmark, causal):
    options = argparse.Namespace(tokens=40, causal=causal, repeats=1)
    rows = benchmark.measure(2, 16, 20, torch.float32, options, DEVICE)
    assert len([row for row in rows if "adasplash" not in row["attention"]]) == 6
    for row in rows:
        assert row["forward_ms"] > 0
        assert row["backward_ms"] > 0
        if "adasplash" not in row["attention"]:
            assert row["output_error"] <= 1e-5
            assert row["query_grad_error"] <= 1e-4


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_that_it_needs_one(benchmark, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fused_attention.py"])
    with pytest.raises(SystemExit):
        benchmark.main()
    assert "needs a GPU that torch can use" in capsys.readouterr().err
