"""All recipes together: each is complete, and what the pages name exists."""

import os
import re

import pytest

from fairseq_entmax.cli import MODULES
from tests.examples.dry_runs import EXAMPLES, DryRun
from tests.examples.miniatures import lines

pytestmark = pytest.mark.slow

REPORT = EXAMPLES.parent / "fairseq_entmax" / "analysis" / "report"
EVERY_RECIPE = sorted(path.parent.name for path in EXAMPLES.glob("*/dataset.sh"))


@pytest.mark.parametrize("recipe", EVERY_RECIPE)
def test_a_recipe_is_complete(recipe):
    folder = EXAMPLES / recipe
    readme = (folder / "README.md").read_text(encoding="utf-8")
    for script in folder.glob("[pte]*.sh"):
        assert os.access(script, os.X_OK)
        assert f"examples/{recipe}/{script.name}" in readme
    table = (EXAMPLES.parent / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert f"](../examples/{recipe}/README.md)" in table
    published = folder / "published.txt"
    if published.exists():
        numbers = re.findall(r"\d+\.\d\d", published.read_text(encoding="utf-8"))
        assert [number for number in numbers if number not in readme] == []


def test_every_archive_of_a_recipe_is_in_the_table():
    rows = [line.split("\t") for line in lines(EXAMPLES / "corpora.tsv")]
    datasets = "".join(path.read_text("utf-8") for path in EXAMPLES.glob("*/dataset.sh"))
    named = " ".join(re.findall(r"ARCHIVES=\(([^)]+)\)", datasets)).split()
    assert {row[0] for row in rows[1:]} == set(named) - {'"${ARCHIVES[@]}"'}


def test_every_command_in_the_table_of_papers_parses_and_its_names_exist(tmp_path):
    page = (EXAMPLES.parent / "docs" / "sources.md").read_text(encoding="utf-8").partition("## ")[2]
    papers = [re.findall(r"(?m)^\|([TF]\d+)\|", part) for part in page.split("||\n")[1:]]
    assert [len(set(items)) for items in papers] == [15, 12, 6, 11]
    dry = DryRun(tmp_path / "stubs")
    command = r"`((?:\w+=\w+ )*)examples/(\w+)/(\w+\.sh) ?([^`]*)`"
    for given, recipe, script, words in re.findall(command, page):
        environment = dict(word.split("=") for word in given.split())
        call = (recipe, script, "--output", tmp_path / "out", *words.split())
        said = dry(*call, check=False, **environment)
        # Only the data or the model is missing
        assert re.search("error: no (data|finished training) in", said), said
    assert set(re.findall(r"`fairseq-entmax (\w+)", page)) <= set(MODULES)
    assert all((EXAMPLES / x).is_dir() for x in re.findall(r"`(\w+_\w\w_\w\w)`", page))
    figures = "".join(path.read_text("utf-8") for path in REPORT.glob("figures_*.py"))
    assert all(x in figures for x in re.findall(r"report `(?:alpha_)?(\w+)\*?`", page))
