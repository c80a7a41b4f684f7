"""examples/lib/claims_job.sh: what it hands to train.sh, and what other code makes it do again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOB = ROOT / "examples" / "lib" / "claims_job.sh"
DATASET = ROOT / "examples" / "bible_es_en" / "dataset.sh"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """A recipe whose train.sh and evaluate.sh print their arguments."""
    folder = tmp_path / "recipe"
    folder.mkdir()
    (folder / "dataset.sh").write_text(f'source "{DATASET}"\n')
    for name in ("train.sh", "evaluate.sh"):
        (folder / name).write_text(f'#!/usr/bin/env bash\necho {name} "$@"\n')
        (folder / name).chmod(0o755)
    (tmp_path / "out" / "data-bin").mkdir(parents=True)
    (tmp_path / "out" / "data-bin" / ".done").touch()
    return folder


def job(recipe: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [str(JOB), str(recipe), str(recipe.parent / "out"), "cpu", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path, **environment},
    )


def test_a_training_has_a_fixed_length_unless_patience_is_asked_for(recipe: Path) -> None:
    told = job(recipe, "train", "run", "softmax", "large")
    assert "train.sh --output" in told.stdout, told.stderr
    assert "--epochs 6 --name run --cpu softmax" in told.stdout
    assert "--patience" not in told.stdout
    patient = job(recipe, "train", "run", "softmax", "small", CLAIMS_ASKED_PATIENCE="2")
    assert patient.stdout.rstrip().endswith("--patience 2")


def test_in_equal_time_it_makes_the_updates_of_the_reference_times_the_ratio(recipe: Path) -> None:
    reference = recipe.parent / "out" / "runs" / "entmax15-large-seed1"
    reference.mkdir(parents=True)
    (reference / "train.log").write_text(
        "x | INFO | valid | epoch 001 | valid on 'valid' subset | loss 5 | num_updates 200\n"
    )
    (recipe.parent / "out" / "pace.json").write_text('{"ratio": 0.8}')
    told = job(recipe, "equaltime", "run", "entmax", "entmax15-large-seed1")
    assert "--updates 160 --name run --cpu entmax" in told.stdout, told.stderr
    assert "--encoder-layers 3" in told.stdout


@pytest.mark.parametrize(("code", "left"), [("old", True), ("new", False)])
def test_other_code_translates_again(recipe: Path, code: str, left: bool) -> None:
    folder = recipe.parent / "out" / "runs" / "run"
    folder.mkdir(parents=True)
    (folder / ".code.done").write_text("old\n")
    (folder / ".translate.done").touch()
    told = job(recipe, "measure", "run", "softmax", CLAIMS_CODE=code)
    assert "evaluate.sh --output" in told.stdout, told.stderr
    assert (folder / ".translate.done").exists() == left
