"""The options of claims.sh: what is refused, and in which words."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "bible_es_en" / "claims.sh"


def claims(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        [str(SCRIPT), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--seeds", "1,x"], "option --seeds got '1,x': give whole numbers, such as 1,2,3"),
        (["--seeds", "1,1"], "option --seeds got '1,1': give each seed once"),
        (["--seeds", "1, 2"], "option --seeds got '1, 2': give names or numbers with commas"),
        (["--more-seeds", "x"], "option --more-seeds got 'x': give whole numbers"),
        (["--more-seeds", "4,1"], "option --more-seeds got '1', which --seeds has: give others"),
        (
            ["--more-seeds", "4", "--corpora", "debian_en_de"],
            "option --more-seeds is for bible_es_en, which --corpora leaves out: add it there",
        ),
        (["--corpora", "bible"], "option --corpora got 'bible', which is no recipe"),
        (["--models", "softmix"], "option --models got 'softmix': give any of softmax"),
        (
            ["--corpora", "debian_en_de,debian_en_de"],
            "option --corpora got 'debian_en_de,debian_en_de': give each corpus once",
        ),
        (["--sizes", "huge"], "option --sizes got 'huge': give any of large, small"),
        (["--jobs", "0"], "option --jobs got '0': give a whole number of at least 1"),
        (["--patience"], "option --patience needs a value"),
        (["--patience", "-1"], "option --patience got '-1': give a whole number of at least 0"),
        (["--seed", "1"], "unknown option '--seed': use --seeds"),
    ],
)
def test_a_wrong_option_is_named_with_the_remedy_before_anything_is_done(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    # What is behind a wrong option is not run, whatever becomes of it
    result = claims("--quick", "--output", tmp_path / "new", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tmp_path / "new").exists()


def test_help_says_its_defaults() -> None:
    result = claims("--help")
    assert result.returncode == 0
    assert "--corpora LIST   recipes (default: bible_es_en,debian_en_de" in result.stdout


@pytest.mark.parametrize(("was_quick", "quick"), [(True, []), (False, ["--quick"])])
def test_a_record_of_a_trial_is_not_mixed_with_a_whole_one(
    was_quick: bool, quick: list[str], tmp_path: Path
) -> None:
    (tmp_path / "record").mkdir()
    (tmp_path / "record" / "record.json").write_text(json.dumps({"quick": was_quick}))
    result = claims(*quick, "--corpora", "bible_es_en", "--output", tmp_path)
    assert result.returncode == 2
    assert "with --quick: choose another --output" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["record"]
