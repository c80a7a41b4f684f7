"""The programs of examples/tools are not a package: they import each other as scripts do."""

import sys
from pathlib import Path

import pytest

from tests.examples.dry_runs import Steps

sys.path.append(str(Path(__file__).resolve().parents[2] / "examples" / "tools"))


@pytest.fixture
def refusal(capsys):
    """A function that calls one that ends with an error, and returns what it says."""

    def of(called, *arguments):
        with pytest.raises(SystemExit):
            called(*arguments)
        return capsys.readouterr().err

    return of


@pytest.fixture
def verses(tmp_path: Path) -> Steps:
    """The data of one of the small recipes."""
    steps = Steps("bible_es_en", tmp_path, TRIAL_PAIRS="240,16,12", BPE_SIZE="300")
    steps.prepared()
    return steps
