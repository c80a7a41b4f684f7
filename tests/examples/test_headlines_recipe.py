"""examples/debian_headlines from end to end on miniature lists, and where lists come from."""

from __future__ import annotations

import csv
import functools
import json
import shutil
import subprocess

import pytest

from tests.examples import debian, debian_recipes
from tests.examples.debian_recipes import apt_configuration, needs_apt, stopping

RECIPE = debian.EXAMPLES / "debian_headlines"
SUBWORDS = {"VOCABULARY": "sentencepiece:160"}
WORDS = {"VOCABULARY": "words:60"}
TINY = ["--encoder-embed-dim=16", "--decoder-embed-dim=16"]
TINY += ["--encoder-ffn-embed-dim=16", "--decoder-ffn-embed-dim=16"]


run = functools.partial(debian_recipes.run, RECIPE)


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lists")
    debian.write(folder, debian.entries(60), ".xz")
    return folder


@pytest.fixture(scope="module")
def prepared(lists, tmp_path_factory):
    """Data of subwords, from lists that are given."""
    folder = tmp_path_factory.mktemp("prepared")
    run("prepare.sh", "--output", folder, "--workers", 1, **SUBWORDS, RAW_DIR=str(lists))
    return folder


@pytest.fixture(scope="module")
def compared(prepared, tmp_path_factory):
    """Two models, trained and scored."""
    folder = tmp_path_factory.mktemp("compared")
    shutil.copytree(prepared, folder, dirs_exist_ok=True)
    for model in ("copy", "no-copy"):
        run("train.sh", "--output", folder, "--epochs", 1, "--cpu", model, *TINY, **SUBWORDS)
        run("evaluate.sh", "--output", folder, "--epochs", 1, "--cpu", model, **SUBWORDS)
    return folder


# --- data ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_data_are_made_once_and_found_again(prepared, lists):
    stamps = {path: path.stat().st_mtime_ns for path in prepared.glob("*/.done")}
    assert len(stamps) == 3
    again = run("prepare.sh", "--output", prepared, **SUBWORDS, RAW_DIR=str(lists)).stdout
    assert again.count("done before") == 3
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps


@pytest.mark.slow
def test_other_lists_make_other_data(prepared, tmp_path):
    debian.write(tmp_path / "lists", debian.entries(50))
    out = tmp_path / "out"
    shutil.copytree(prepared, out)
    given = {**SUBWORDS, "RAW_DIR": str(tmp_path / "lists")}
    run("prepare.sh", "--output", out, "--workers", 1, **given)
    assert "75 packages with a description" in (out / "text" / "facts.txt").read_text()


@pytest.mark.slow
def test_words_outside_the_vocabulary_get_numbers_that_the_model_copies(lists, tmp_path):
    run("prepare.sh", "--output", tmp_path, "--workers", 1, **WORDS, RAW_DIR=str(lists))
    dictionary = lines(tmp_path / "data-bin" / "dict.source.txt")
    markers = [line.split()[0] for line in dictionary[-60:]]
    assert markers == [f"<unk-{number}>" for number in range(60)]
    assert any("<unk-0>" in line for line in lines(tmp_path / "words" / "train.source"))
    options = ["--output", tmp_path, "--epochs", 1, "--cpu"]
    wrong = run("train.sh", *options, "copy", check=False)
    assert "were prepared with VOCABULARY=words:60: say so here, too" in wrong.stderr
    run("train.sh", *options, "copy", *TINY, **WORDS)
    run("evaluate.sh", *options, "copy", **WORDS)
    titles = lines(tmp_path / "runs" / "copy-1epochs" / "test.hyp")
    assert len(titles) == len(lines(tmp_path / "text" / "test.target"))
    assert not any("<unk-" in title for title in titles)


# --- where lists come from ----------------------------------------------------------------


@needs_apt
def test_lists_of_this_machine_are_taken_where_they_have_descriptions(tmp_path):
    debian.write(tmp_path / "lists", debian.entries(60))
    config = apt_configuration(tmp_path, tmp_path / "lists")
    given = {**SUBWORDS, "APT_CONFIG": config, "PATH": stopping(tmp_path)}
    printed = run("prepare.sh", "--output", tmp_path / "out", check=False, **given).stdout
    assert "lists: those of this machine" in printed
    assert "90 packages with a description" in printed
    assert len(list((tmp_path / "out" / "raw").glob("*main*"))) == 2


@needs_apt
def test_an_update_into_a_folder_of_its_own_brings_them_else_and_once(tmp_path):
    repository = tmp_path / "mirror" / "dists" / "stable"
    debian.write_repository(repository, debian.entries(60))
    source = f"deb [trusted=yes] file:{tmp_path}/mirror stable main\n"
    own = tmp_path / "lists"
    config = apt_configuration(tmp_path, own, source)
    out = tmp_path / "out"
    given = {**SUBWORDS, "APT_CONFIG": config, "PATH": stopping(tmp_path)}
    first = run("prepare.sh", "--output", out, check=False, **given)
    assert "90 packages with a description" in first.stdout, first.stderr
    assert not list(own.iterdir())  # the machine's own stay as they are
    assert not (out / "raw" / "apt").exists()
    # A mirror that has moved on changes nothing
    shutil.rmtree(repository)
    shutil.rmtree(out / "text")
    second = run("prepare.sh", "--output", out, check=False, **given).stdout
    assert "90 packages with a description" in second
    assert "lists:" not in second


@needs_apt
def test_a_mirror_that_cannot_be_read_leaves_nothing_half_made(tmp_path):
    source = f"deb [trusted=yes] file:{tmp_path}/none stable main\n"
    config = apt_configuration(tmp_path, tmp_path / "lists", source)
    out = tmp_path / "out"
    failed = run("prepare.sh", "--output", out, check=False, **SUBWORDS, APT_CONFIG=config)
    assert failed.returncode == 1
    assert "apt-get update failed" in failed.stderr
    assert "name it in RAW_DIR" in failed.stderr
    assert [path.name for path in out.iterdir()] == [".lock"]


def test_without_apt_it_says_which_files_to_take(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "basename").symlink_to(shutil.which("basename"))
    script = (
        'set -euo pipefail; source "$1/common.sh"; LANGUAGES=(en); source "$1/debian_lists.sh"; '
        'PATH=$2; fetch_lists "$3"'
    )
    command = ["bash", "-c", script, "prepare.sh", RECIPE.parent / "lib", folder, tmp_path]
    failed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert failed.returncode == 1
    assert failed.stderr.startswith("prepare.sh: error: this machine has no apt")
    assert "take main/i18n/Translation-en.xz" in failed.stderr


# --- models -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_is_scored_by_rouge_with_intervals(compared):
    scores = (compared / "runs" / "copy-1epochs" / "scores.txt").read_text(encoding="utf-8")
    assert all(kind in scores for kind in ("ROUGE-1", "ROUGE-2", "ROUGE-L"))
    again = run("evaluate.sh", "--output", compared, "--epochs", 1, "--cpu", "copy", **SUBWORDS)
    assert again.stdout.count("done before") == 3


@pytest.mark.slow
@pytest.mark.parametrize("model", ["entmax15", "entmax", "fusedmax", "sparse-copy-head"])
def test_every_model_copies_with_the_mapping_of_its_name(model, compared):
    options = ["--output", compared, "--epochs", 1, "--cpu"]
    log = run("train.sh", *options, model, *TINY, **SUBWORDS).stdout
    assert "copy_support" in log
    assert ("copy_loss=" in log or "copy_loss |" in log or "| copy_loss " in log) == (
        model != "fusedmax"
    )


@pytest.mark.slow
def test_the_report_holds_models_against_the_first(compared):
    options = ["--output", compared, "--epochs", 1, "--cpu", "--models", "copy,no-copy"]
    run("report.sh", *options, **SUBWORDS)
    with (compared / "rouge.tsv").open(encoding="utf-8", newline="") as file:
        rows = {row["model"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert list(rows) == ["copy", "no-copy"]
    for model, row in rows.items():
        document = json.loads((compared / "runs" / f"{model}-1epochs" / "rouge.json").read_text())
        of = document["compared"]["rougeL"] if model == "no-copy" else document["rougeL"]["f1"]
        assert float(row["ROUGE-L"]) == pytest.approx(of["value"], abs=0.005)
    gained = float(rows["no-copy"]["ROUGE-L"]) - float(rows["copy"]["ROUGE-L"])
    assert float(rows["no-copy"]["change of ROUGE-L"]) == pytest.approx(gained, abs=0.011)
    assert (compared / "compare" / "report.html").stat().st_size > 0
    assert run("report.sh", *options, **SUBWORDS).stdout.count("done before") == 2


@pytest.mark.slow
def test_a_model_that_copies_is_pruned_and_keeps_its_copy_head(tmp_path):
    debian.write(tmp_path / "lists", debian.entries(240))
    given = {**SUBWORDS, "RAW_DIR": str(tmp_path / "lists")}
    run("prepare.sh", "--output", tmp_path / "out", "--workers", 1, **given)
    options = [
        "--output",
        tmp_path / "out",
        "--epochs",
        1,
        "--search-updates",
        6,
        "--recovery-updates",
        4,
        "--cpu",
    ]
    run("prune.sh", *options, "--budgets", "all=6", "--", *TINY, **SUBWORDS)
    with (tmp_path / "out" / "pruning.tsv").open(encoding="utf-8", newline="") as file:
        rows = {row["model"]: row for row in csv.DictReader(file, delimiter="\t")}
    attentions = ("encoder-self", "decoder-self", "cross")
    heads = [int(rows["all6-pruned"][attention].split()[0]) for attention in attentions]
    assert list(rows) == ["baseline", "all6-pruned"]
    assert sum(heads) == 6
    assert heads[-1] >= 1


@pytest.mark.parametrize(
    ("script", "arguments", "further", "message"),
    [
        ("prepare.sh", [], {"VOCABULARY": "bpe:3"}, "VOCABULARY is 'bpe:3'"),
        ("prepare.sh", [], {"RAW_DIR": "/nowhere"}, "RAW_DIR is '/nowhere'"),
        ("train.sh", [], {}, "no mapping given"),
        ("report.sh", ["--models", "copies"], {}, "option --models got 'copies': give no-copy"),
        ("report.sh", ["--models", ""], {}, "option --models got '': give no-copy"),
        ("report.sh", ["--model", "copy"], {}, "unknown option '--model'"),
    ],
)
def test_a_wrong_option_is_named_with_the_remedy(script, arguments, further, message, tmp_path):
    out = tmp_path / "new"
    result = run(script, "--output", out, *arguments, check=False, **further)
    assert result.returncode == 2
    assert message in result.stderr
    assert not out.exists()
