"""examples/bible_es_en/prune.sh from end to end, on a slice of the corpus."""

import csv
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import preloaded
from tests.examples.miniatures import TRIAL

RECIPE = Path(__file__).parents[2] / "examples" / "bible_es_en"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"


def prune(*arguments):
    return subprocess.run(
        [RECIPE / "prune.sh", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": preloaded.path(PATH), "OMP_NUM_THREADS": "1", **TRIAL},
    )


@pytest.mark.slow
def test_the_recipe_prunes_trains_from_scratch_and_prints_one_table(data, tmp_path):
    shutil.copytree(data / "bin", tmp_path / "data-bin")
    (tmp_path / "data-bin" / ".done").touch()
    (tmp_path / "text").mkdir()
    shutil.copy(data / "test.en", tmp_path / "text" / "test.en")
    options = ["--output", tmp_path, "--mapping", "entmax", "--budgets", "all=6"]
    options += [
        "--epochs",
        1,
        "--search-updates",
        12,
        "--recovery-updates",
        6,
        "--cpu",
    ]
    first = prune(*options)
    assert first.returncode == 0, first.stdout[-2000:] + first.stderr[-2000:]
    with (tmp_path / "pruning.tsv").open(encoding="utf-8", newline="") as file:
        rows = {row["model"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert list(rows) == ["baseline", "continued", "all6-pruned", "all6-scratch"]
    attentions = ("encoder-self", "decoder-self", "cross")
    heads = {
        model: sum(int(row[attention].split()[0]) for attention in attentions)
        for model, row in rows.items()
    }
    assert heads == {"baseline": 72, "continued": 72, "all6-pruned": 6, "all6-scratch": 6}
    assert [rows["all6-scratch"][a] for a in attentions] == [
        rows["all6-pruned"][a] for a in attentions
    ]
    parameters = {model: int(row["parameters"]) for model, row in rows.items()}
    assert parameters["all6-scratch"] == parameters["all6-pruned"] < parameters["baseline"]
    for row in rows.values():
        assert 0 <= float(row["BLEU"]) <= 100
        assert float(row["sentences/s"]) > 0
    # Run again it has nothing to do, and finds the same
    table = (tmp_path / "pruning.tsv").read_text(encoding="utf-8")
    second = prune(*options)
    assert second.returncode == 0, second.stderr
    assert second.stdout.count(": done before") >= 4 * 4
    assert "epochs" not in second.stdout.replace("epochs: done", "")
    assert (tmp_path / "pruning.tsv").read_text(encoding="utf-8") == table


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budgets", "all=73"], "option --budgets got 'all=73': give all=N with N up to 72"),
        (["--budgets", "encoder=25"], "encoder=N with N up to 24"),
        (["--budgets", "24/25/24"], "three numbers up to 24"),
        (["--budgets", "2/3"], "option --budgets got '2/3'"),
        (["--budgets", "decoder=3"], "option --budgets got 'decoder=3'"),
        (["--budgets", ""], "option --budgets got ''"),
        (["--search-updates", "3"], "option --search-updates got '3': give 4 or more"),
        (["--budget", "all=3"], "unknown option '--budget'"),
        (["--mapping"], "option --mapping needs a value"),
    ],
)
def test_a_wrong_option_is_named_with_the_remedy(tmp_path, arguments, message):
    result = prune("--output", tmp_path / "new", *arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert not (tmp_path / "new").exists()


def test_without_data_it_says_what_to_run(tmp_path):
    result = prune("--output", tmp_path, "--cpu")
    assert result.returncode == 1
    assert "run prepare.sh" in result.stderr
