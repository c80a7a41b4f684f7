"""The options of claims.sh: what is refused, and in which words."""

from __future__ import annotations

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
        (["--seeds", "1, 2"], "option --seeds got '1, 2': give names or numbers with commas"),
        (["--corpora", "bible"], "option --corpora got 'bible', which is no recipe"),
        (["--models", "softmix"], "option --models got 'softmix': give any of softmax, entmax"),
        (["--sizes", "huge"], "option --sizes got 'huge': give any of small, large"),
        (["--epochs"], "option --epochs needs a value"),
        (["--jobs", "0"], "option --jobs got '0': give a whole number of at least 1"),
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
