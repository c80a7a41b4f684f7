"""The benchmarks compare the right things, print and write them; their speed is not tested."""

import argparse
import json
import logging

import pytest
import torch

from tests.kernels.native.support import needs_compiler
from tests.kernels.triton.support import DEVICE
from tests.scripts.support import load, run

MODELS = ["stock fairseq", "softmax", "entmax15", "entmax", "entmax_bisect"]
RANDOM = ["random:40x20", "--rounds=2", "--updates=1", "--max-tokens=80", "--query-scale=9"]
TINY = ["--sentences=2", "--batch=2", "--beam=2", "--repeats=2"]
ATTENTION = ["--shapes", "1x1x8x8", "--spreads", "1", "--queries", "smooth", "--rounds=1"]


@pytest.fixture(autouse=True)
def logs():
    yield
    logging.disable(logging.NOTSET)


def report_of(name, monkeypatch, tmp_path, *words):
    run(name, monkeypatch, *words, "--json", tmp_path / "numbers.json")
    return json.loads((tmp_path / "numbers.json").read_text(encoding="utf-8"))


@needs_compiler
@pytest.mark.parametrize(
    ("name", "words", "field", "rows"),
    [
        ("mapping", ["--shapes", "64x8", "32x9", "--repeats=1"], "mapping", 14),
        ("mapping", ["--drawn", "--shapes", "64x8", "32x9", "--repeats=1"], "shape", 2),
        ("structured", ["--shapes", "64x8", "32x9", "--repeats=1"], "mapping", 18),
        ("losses", ["--rows=8", "--keys=300", "--rounds=1", "--alphas", "1.5"], "loss", 10),
        ("cpu_attention", [*ATTENTION, "--threads", "1"], "shape", 1),
        ("pruned_generation", [*TINY, "--mapping=entmax"], "model", 4),
    ],
)
def test_every_contender_is_timed_printed_and_written(
    name, words, field, rows, monkeypatch, tmp_path, capsys
):
    report = report_of(name, monkeypatch, tmp_path, *words)
    found = report.get("results") or report["models"]
    assert len(found) == rows
    output = capsys.readouterr().out
    for row in found:
        assert row[field] in output
        for key, value in row.items():
            if key.endswith(("_ms", "_seconds", "ratio")):
                numbers = value.values() if isinstance(value, dict) else [value]
                assert all(number > 0 for number in numbers), key
    assert report["settings"]["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("name", "words", "field"),
    [("training", RANDOM, "speeds"), ("generation", TINY, "seconds")],
)
def test_every_model_is_timed_in_every_round(name, words, field, monkeypatch, tmp_path):
    report = report_of(name, monkeypatch, tmp_path, *words)
    assert [row["model"] for row in report["models"]] == MODELS
    assert [len(row[field]) for row in report["models"]] == [2] * len(MODELS)
    assert report["models"][0]["ratio"] == 1
    if name == "training":
        keys = {row["model"]: row["keys_with_weight"] for row in report["models"]}
        assert keys["stock fairseq"] == {}
        assert 1 <= keys["entmax15"]["encoder"] < 40


@needs_compiler
def test_growth_is_measured_and_can_be_redrawn_without_measuring(monkeypatch, tmp_path):
    pytest.importorskip("vl_convert")
    run("growth", monkeypatch, "--run", "--quick", "--rounds=1", "--output", tmp_path)
    numbers = (tmp_path / "growth.json").read_text(encoding="utf-8")
    rows = json.loads(numbers)["results"]
    assert [row["figure"] for row in rows] == ["length"] * 2 + ["density"] * 3
    pictures = sorted(tmp_path.glob("*.svg"))
    assert [path.stem for path in pictures] == ["growth_density", "growth_length"]
    for path in pictures:
        path.unlink()
    run("growth", monkeypatch, "--output", tmp_path)
    assert all(path.read_bytes().startswith(b"<svg") for path in pictures)
    assert (tmp_path / "growth.json").read_text(encoding="utf-8") == numbers


@needs_compiler
def test_timed_attentions_agree(monkeypatch):
    benchmark = load("cpu_attention", monkeypatch)
    case = benchmark.drawn((2, 2, 40, 16), 3.0, "smooth", 1.6)
    runs, inputs = benchmark.contenders(case), (case.query, case.key, case.value)
    torch.testing.assert_close(runs["sdpa"](*inputs), runs["bmm"](*inputs))
    torch.testing.assert_close(runs["here"](*inputs), runs["apart"](*inputs))
    (row,) = benchmark.measure([(1, case)], 2, 0.0)
    assert row["error"] <= 1e-5
    assert 0 < row["density"] < 0.5
    assert (row["both_ratio"]["sdpa"], row["rounds"]) == (1.0, 2)


def test_attention_on_a_gpu_matches_float64(monkeypatch):
    pytest.importorskip("triton")
    benchmark = load("fused_attention", monkeypatch)
    options = argparse.Namespace(tokens=40, causal=True, repeats=1, spread=2.0)
    rows = benchmark.measure(2, 16, 20, torch.float32, options, DEVICE)
    assert {"fused, learned alpha", "softmax, torch's choice", "unfused, entmax_bisect"} <= {
        row["attention"] for row in rows
    }
    for row in rows:
        assert row["forward_ms"] > 0
        if "adasplash" not in row["attention"]:
            assert row["output_error"] <= 1e-5
            assert row["query_grad_error"] <= 1e-4


@pytest.mark.parametrize(
    ("name", "words", "message"),
    [
        ("mapping", ["--shapes", "12"], "--shapes"),
        ("training", ["nowhere"], "argument DATA: got 'nowhere': there is no such folder"),
        ("training", ["random:400"], "argument DATA: got '400': give random:SOURCExTARGET"),
        ("pruned_generation", ["--mapping=hardmax"], "--mapping: unknown mapping 'hardmax'"),
    ],
)
def test_a_wrong_option_is_named(name, words, message, monkeypatch, capsys):
    with pytest.raises(SystemExit):
        run(name, monkeypatch, *words)
    assert message in capsys.readouterr().err
