"""scripts/soak.sh: kills, and what it says of what differs; on the kinds of jobs that take no time."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "soak.sh"


def soak(*arguments):
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [SCRIPT, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
    )


@pytest.fixture
def kinds(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "soak"))
    yield importlib.import_module("kinds")
    del sys.modules["kinds"]


@pytest.mark.slow
def test_killed_jobs_end_as_one_that_was_not(tmp_path):
    result = soak("--kinds", "oov", "--kills", 5, "--seed", 3, "--output", tmp_path)
    assert result.returncode == 0, result.stderr
    last = result.stdout.splitlines()[-1]
    assert last.startswith("==> 5 kills (oov 5) of ")
    assert last.endswith("seed 3: 0 differences")
    assert list((tmp_path / "killed").iterdir()) == []


def test_what_is_missing_other_or_left_over_is_told(kinds, tmp_path):
    kind = kinds.KINDS["oov"]
    expected, found = tmp_path / "expected", tmp_path / "found"
    for folder in (expected, found):
        folder.mkdir()
        (folder / "same").write_text("same")
        (folder / "other").write_text(folder.name)
        (folder / "train.log").write_text(folder.name)
    (expected / "gone").touch()
    (found / "new").touch()
    (found / "marked.tmp12").touch()
    (found / "data-bin.tmp").mkdir()
    assert kinds.differences(kind, expected, found) == [
        "oov: gone is missing",
        "oov: new is there, and should not be",
        "oov: other has other content",
        "oov: data-bin.tmp was left",
        "oov: marked.tmp12 was left",
    ]
    assert kinds.differences(kind, expected, expected) == []


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("--kills", "0", "option --kills got '0': give a whole number of at least 1"),
        ("--kinds", "oov,tag", "option --kinds got 'tag': give some of prepare,train,"),
        ("--seed", "-1", "option --seed got '-1': give a whole number"),
        ("--faults", "1", "unknown option '--faults'"),
    ],
)
def test_wrong_options_are_named(option, value, said, tmp_path):
    result = soak("--output", tmp_path, option, value)
    assert result.returncode == 2
    assert said in result.stderr
