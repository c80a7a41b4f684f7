"""The benchmarks of speed: what they print and write, not how fast anything is."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kernels.native.support import needs_compiler

FOLDER = Path(__file__).parents[3] / "scripts" / "benchmarks"
ALL = ["stock fairseq", "softmax", "entmax15", "entmax", "entmax_bisect"]

OTHER = ["softmax --cross-attn-mapping sparsemax"]


def run(name, *arguments):
    return subprocess.run(
        [sys.executable, "-W", "ignore", FOLDER / f"{name}.py", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@needs_compiler
@pytest.mark.slow
def test_every_mapping_is_timed_and_its_memory_taken(tmp_path):
    out = tmp_path / "mapping.json"
    result = run("mapping", "--shapes", "64x8", "32x30", "--repeats", 1, "--json", out)
    assert result.returncode == 0, result.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))["results"]
    assert [(row["rows"], row["keys"]) for row in rows] == [(64, 8)] * 7 + [(32, 30)] * 7
    for row in rows:
        assert row["forward_ms"] > 0
        assert row["backward_ms"] > 0
        assert f"{row['mapping']:<28}" in result.stdout
    memory = {row["mapping"]: row["peak_memory"] for row in rows[7:]}
    assert memory["torch.softmax"] == pytest.approx(2, abs=0.1)  # probabilities and gradient
    assert memory["entmax.entmax_bisect"] > 4


@needs_compiler
@pytest.mark.slow
def test_every_mapping_with_structure_is_timed_beside_its_peers(tmp_path):
    out = tmp_path / "structured.json"
    result = run("structured", "--shapes", "64x8", "--repeats", 1, "--json", out)
    assert result.returncode == 0, result.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))["results"]
    names = [row["mapping"] for row in rows]
    for name in ("fusedmax (native)", "fusedmax (Condat, scalar C)", "torch.softmax"):
        assert name in names
        assert name in result.stdout
    assert all(row["forward_ms"] > 0 for row in rows)


def test_growth_is_the_exponent_of_the_cost():
    spec = importlib.util.spec_from_file_location("mapping", FOLDER / "mapping.py")
    mapping = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(mapping)
    assert mapping.exponent([1, 2, 4], [3.0, 6.0, 12.0]) == pytest.approx(1)
    assert mapping.exponent([10, 100], [7.0, 700.0]) == pytest.approx(2)
    rows = [
        {"mapping": "a", "rows": rows, "keys": keys, "forward_ms": rows * 1e-3, "backward_ms": 0.0}
        for rows, keys in (
            map(int, shape.split("x")) for shape in mapping.BY_LENGTH + mapping.BY_ROWS
        )
    ]
    (row,) = mapping.growth(rows)
    assert row["exponent_of_length"] == pytest.approx(-1)  # 2^20 scores: rows fall as keys rise
    assert row["exponent_of_rows"] == pytest.approx(1)


@pytest.mark.slow
def test_every_model_trains_on_the_same_batches(data, tmp_path):
    out = tmp_path / "training.json"
    sizes = ["--rounds", 2, "--updates", 1, "--max-tokens", 600]
    mappings = [word for spec in (*ALL[1:-1], *OTHER) for word in ("--mapping", spec)]
    result = run("training", data / "bin", *sizes, "--json", out, "--decoder-layers", 1, *mappings)
    assert result.returncode == 0, result.stderr[-2000:]
    report = json.loads(out.read_text(encoding="utf-8"))
    assert report["settings"]["fairseq_options"] == ["--decoder-layers", "1"]
    assert [row["model"] for row in report["models"]] == [*ALL[:-1], *OTHER, ALL[-1]]
    for row in report["models"]:
        assert len(row["speeds"]) == 2
        assert f"{row['model']:<14}" in result.stdout
    assert report["models"][0]["ratio"] == 1


@pytest.mark.slow
def test_every_model_translates(tmp_path):
    out = tmp_path / "generation.json"
    sizes = ["--sentences", 2, "--batch", 2, "--beam", 2, "--repeats", 1]
    result = run("generation", *sizes, "--json", out)
    assert result.returncode == 0, result.stderr[-2000:]
    rows = json.loads(out.read_text(encoding="utf-8"))["models"]
    assert [row["model"] for row in rows] == ALL
    assert rows[0]["ratio"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("mapping", ["--shapes", "12"], "--shapes got '12': give ROWSxKEYS"),
        ("mapping", ["--repeats", 0], "--repeats must be 1 or more"),
        ("training", ["nowhere"], "DATA got 'nowhere': there is no such folder"),
        ("training", [".", "--rounds", 0], "must be 1 or more"),
        ("generation", ["--beam", 0], "must be 1 or more"),
        ("generation", ["--fp16"], "--fp16 needs --device cuda"),
    ],
)
def test_a_wrong_option_is_named(name, arguments, message):
    result = run(name, *arguments)
    assert result.returncode == 2
    assert message in result.stderr
