"""examples/debian_en_de from end to end on miniature lists, and where lists come from."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.examples import debian, debian_recipes
from tests.examples.debian_recipes import apt_configuration, needs_apt, stopping

RECIPE = debian.EXAMPLES / "debian_en_de"
run = functools.partial(debian_recipes.run, RECIPE)
SUBWORDS = {"BPE_SIZE": "180"}
MADE = debian.german(debian.entries(60))
TINY = [
    f"--{side}-{part}=16"
    for side in ("encoder", "decoder")
    for part in ("embed-dim", "ffn-embed-dim")
]


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lists")
    debian.write(folder, MADE, ".xz")
    return folder


# --- data and models ----------------------------------------------------------------------


@pytest.mark.slow
def test_the_recipe_goes_from_lists_to_scores(lists: Path, tmp_path: Path) -> None:
    given = {**SUBWORDS, "RAW_DIR": str(lists)}
    run("prepare.sh", "--output", tmp_path, "--workers", 1, **given)
    again = run("prepare.sh", "--output", tmp_path, **given).stdout
    assert again.count("done before") == 3
    assert not (tmp_path / "raw").exists()  # the lists stay where they are
    options = ["--output", tmp_path, "--epochs", 1, "--cpu"]
    log = run("train.sh", *options, "entmax", *TINY).stdout
    assert "| valid on 'valid' subset |" in log
    printed = run("evaluate.sh", *options, "entmax").stdout
    bleu = re.search(r"BLEU\|nrefs:1\|case:mixed\|eff:no\|tok:13a\|\S* = ([0-9.]+) ", printed)
    assert bleu is not None
    assert 0 <= float(bleu[1]) <= 100
    done = tmp_path / "runs" / "entmax-1epochs"
    assert lines(done / "test.ref") == lines(tmp_path / "text" / "test.de")
    assert len(lines(done / "test.hyp")) == len(lines(done / "test.ref"))


def test_the_report_holds_the_mappings_of_the_papers_side_by_side() -> None:
    assert "(default: softmax,entmax15,entmax)" in run("report.sh", "--help").stdout


def test_models_are_those_of_the_verses() -> None:
    shown = {}
    for recipe in ("bible_es_en", "debian_en_de"):
        script = (
            f"set -eu; ROOT={debian.EXAMPLES.parent} RECIPE={debian.EXAMPLES / recipe}; "
            "source $ROOT/examples/lib/common.sh; source $RECIPE/dataset.sh; "
            'echo "${MODEL[@]}" "${TRAINING[@]}" "${PRUNE_MODEL[@]}" $BATCH_TOKENS $PRUNE_HEADS'
        )
        command = ["bash", "-c", script]
        shown[recipe] = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown["bible_es_en"] == shown["debian_en_de"]
    assert "--encoder-embed-dim 128" in shown["debian_en_de"]


# --- where lists come from ----------------------------------------------------------------


@needs_apt
def test_lists_of_this_machine_are_taken_where_they_have_both_languages(tmp_path: Path) -> None:
    debian.write(tmp_path / "lists", MADE)
    config = apt_configuration(tmp_path, tmp_path / "lists")
    given = {**SUBWORDS, "APT_CONFIG": config, "PATH": stopping(tmp_path)}
    printed = run("prepare.sh", "--output", tmp_path / "out", check=False, **given).stdout
    assert "lists: those of this machine" in printed
    assert "90 translated descriptions" in printed
    assert len(list((tmp_path / "out" / "raw").glob("*main*"))) == 3


@needs_apt
def test_an_update_brings_german_where_this_machine_has_english_alone(tmp_path: Path) -> None:
    debian.write_repository(tmp_path / "mirror" / "dists" / "stable", MADE)
    own = tmp_path / "lists"
    debian.write(own, debian.entries(60))
    before = sorted(own.iterdir())
    source = f"deb [trusted=yes] file:{tmp_path}/mirror stable main\n"
    config = apt_configuration(tmp_path, own, source)
    given = {**SUBWORDS, "APT_CONFIG": config, "PATH": stopping(tmp_path)}
    out = tmp_path / "out"
    first = run("prepare.sh", "--output", out, check=False, **given)
    assert "90 translated descriptions" in first.stdout, first.stderr
    assert sorted(own.iterdir()) == before  # the machine's own stay as they are
    assert len(list((out / "raw").glob("*main*"))) == 3
    # A mirror that has moved on changes nothing
    shutil.rmtree(tmp_path / "mirror")
    shutil.rmtree(out / "text")
    second = run("prepare.sh", "--output", out, check=False, **given).stdout
    assert "90 translated descriptions" in second
    assert "lists:" not in second


@needs_apt
def test_sources_without_german_leave_nothing_half_made(tmp_path: Path) -> None:
    debian.write_repository(tmp_path / "mirror" / "dists" / "stable", debian.entries(20))
    source = f"deb [trusted=yes] file:{tmp_path}/mirror stable main\n"
    config = apt_configuration(tmp_path, tmp_path / "lists", source)
    out = tmp_path / "out"
    failed = run("prepare.sh", "--output", out, check=False, **SUBWORDS, APT_CONFIG=config)
    assert failed.returncode == 1
    wanted = "do not have all of the descriptions (Translation-de Translation-en): take main/i18n/"
    assert wanted in failed.stderr
    assert "Translation-de.bz2, main/i18n/Translation-en.xz and main/" in failed.stderr
    assert "name it in RAW_DIR" in failed.stderr
    assert [path.name for path in out.iterdir()] == [".lock"]


def test_given_lists_without_german_are_refused_with_the_remedy(
    lists: Path, tmp_path: Path
) -> None:
    shutil.copytree(lists, tmp_path / "lists")
    next((tmp_path / "lists").glob("*Translation-de*")).unlink()
    given = {**SUBWORDS, "RAW_DIR": str(tmp_path / "lists")}
    failed = run("prepare.sh", "--output", tmp_path / "out", check=False, **given)
    assert failed.returncode == 1
    assert "has no list *Translation-de*: take main/i18n/Translation-de.bz2" in failed.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]


@pytest.mark.parametrize(
    ("script", "arguments", "further", "message"),
    [
        ("prepare.sh", [], {"BPE_SIZE": "0"}, "BPE_SIZE got '0'"),
        ("prepare.sh", [], {"RAW_DIR": "/nowhere"}, "RAW_DIR is '/nowhere'"),
        ("train.sh", [], {}, "no mapping given"),
        ("prune.sh", ["--budgets", "all=73"], {}, "give all=N with N up to 72"),
    ],
)
def test_a_wrong_option_is_named_with_the_remedy(
    script: str, arguments: list[str], further: dict[str, str], message: str, tmp_path: Path
) -> None:
    out = tmp_path / "new"
    result = run(script, "--output", out, *arguments, check=False, **further)
    assert result.returncode == 2
    assert message in result.stderr
    assert not out.exists()
