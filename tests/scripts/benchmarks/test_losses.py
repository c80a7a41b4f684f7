"""The benchmark of the losses: what it prints and writes, not how fast anything is."""

import json

import pytest

from tests.kernels.native.support import needs_compiler
from tests.scripts.benchmarks.support import run

SMALL = ("--rows", 8, "--keys", 300, "--rounds", 2, "--threads", 1)


@needs_compiler
@pytest.mark.slow
def test_every_loss_is_timed_beside_its_peers(tmp_path):
    out = tmp_path / "losses.json"
    result = run("losses", *SMALL, "--alphas", 1, 1.5, 2, "--json", out)
    assert result.returncode == 0, result.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))["results"]
    names = [row["loss"] for row in rows if row["scores"] == "trained"]
    assert names == [
        *("torch cross_entropy", "here 1 (torch)"),
        *("here 1.5 (native)", "here 1.5 (torch)", "entmax.bisect 1.5"),
        *("here 2 (native)", "here 2 (torch)", "entmax.bisect 2"),
        *("entmax.entmax15 k=100", "entmax.sparsemax k=100"),
    ]
    for row in rows:
        assert row["loss"] in result.stdout
        assert row["forward_ms"] > 0
        assert row["to_cross_entropy"] > 0
        assert (row["bisection_to_it"] is None) == (row["loss"] in names[:2])
    support = {(row["scores"], row["loss"]): row["support"] for row in rows}
    assert support["random", "torch cross_entropy"] == 300
    # Ten keys stand out
    assert 1 <= support["trained", "here 2 (native)"] <= 10


@needs_compiler
@pytest.mark.slow
def test_bisection_may_have_no_turn():
    result = run("losses", *SMALL, "--alphas", 1.5, "--bisection-rounds", 0, "--scores", "random")
    assert result.returncode == 0, result.stderr
    assert "here 1.5 (native)" in result.stdout
    assert "bisect 1.5" not in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize("option", ["rows", "rounds", "threads"])
def test_sizes_are_at_least_one(option):
    result = run("losses", f"--{option}", 0)
    assert result.returncode == 2
    assert f"--{option} must be 1 or more" in result.stderr
