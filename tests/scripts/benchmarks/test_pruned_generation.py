"""scripts/benchmarks/pruned_generation.py: what it prints and writes, not how fast anything is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts" / "benchmarks" / "pruned_generation.py"


def run(*arguments):
    return subprocess.run(
        [sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_models_with_fewer_heads_are_timed_side_by_side(tmp_path):
    out = tmp_path / "speed.json"
    sizes = ["--sentences", 2, "--batch", 2, "--beam", 1, "--repeats", 2]
    result = run("--mapping", "entmax", *sizes, "--json", out)
    assert result.returncode == 0, result.stderr
    rows = json.loads(out.read_text(encoding="utf-8"))["models"]
    assert [row["model"] for row in rows] == ["all heads", "1/2 heads", "1/4 heads", "no heads"]
    parameters = [row["parameters"] for row in rows]
    assert parameters == sorted(set(parameters), reverse=True)
    assert rows[0]["ratio"] == 1
    for row in rows:
        assert len(row["seconds"]) == 2
        assert f"{row['parameters']:,}" in result.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mapping", "hardmax"], "--mapping: unknown mapping 'hardmax'"),
        (["DATA", "--path", "none.pt"], "--path got 'none.pt': there is no such file"),
        (["DATA"], "DATA and --path belong together"),
        (["--repeats", "0"], "must be 1 or more"),
    ],
)
def test_a_wrong_option_is_named(arguments, message):
    result = run(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
