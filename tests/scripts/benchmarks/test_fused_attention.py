"""The benchmark of fused attention: what it compares agrees, and it asks for a GPU."""

import argparse
import sys

import pytest
import torch

from tests.kernels.triton.support import DEVICE
from tests.scripts.benchmarks.support import load

pytest.importorskip("triton")


@pytest.fixture
def benchmark(monkeypatch):
    return load("fused_attention", monkeypatch)


@pytest.mark.parametrize("causal", [False, True])
def test_all_contenders_give_the_output_of_float64(benchmark, causal):
    options = argparse.Namespace(tokens=40, causal=causal, repeats=1, spread=2.0)
    rows = benchmark.measure(2, 16, 20, torch.float32, options, DEVICE)
    names = [row["attention"] for row in rows]
    assert [name for name in names if "fused" in name] == [
        *("fused, learned alpha", "fused, alpha 1.5"),
        *("unfused, learned alpha", "unfused, alpha 1.5", "unfused, learned alpha (torch)"),
        "unfused, entmax_bisect",
    ]
    assert {"softmax, torch's choice", "softmax, flash"} <= {*names}
    for row in rows:
        assert row["forward_ms"] > 0
        assert row["backward_ms"] > 0
        if "adasplash" not in row["attention"]:
            assert row["output_error"] <= 1e-5
            assert row["query_grad_error"] <= 1e-4


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lengths", "8", "0"], "--lengths must be 1 or more, not 0"),
        (["--repeats", "0"], "--repeats must be 1 or more, not 0"),
        (["--tokens", "0"], "--tokens must be 1 or more, not 0"),
        (["--spread", "nan"], "--spread must be a number above 0, not nan"),
    ],
)
def test_a_wrong_option_is_named(benchmark, monkeypatch, capsys, words, message):
    monkeypatch.setattr(sys, "argv", ["fused_attention.py", "--device", "cpu", *words])
    with pytest.raises(SystemExit):
        benchmark.main()
    assert message in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_that_it_needs_one(benchmark, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fused_attention.py"])
    with pytest.raises(SystemExit):
        benchmark.main()
    assert "needs a GPU that torch can use" in capsys.readouterr().err
