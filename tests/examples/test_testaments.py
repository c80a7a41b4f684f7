"""examples/bible_testaments: who may be in which split, and the recipe from end to end."""

from __future__ import annotations

import csv
import importlib.util
import json
import lzma
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from tests import preloaded

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RECIPE = EXAMPLES / "bible_testaments"
CORPUS = EXAMPLES / "bible_es_en" / "data" / "bible.es-en.tsv.xz"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
TINY = ["--encoder-layers=1", "--encoder-embed-dim=16", "--encoder-ffn-embed-dim=16"]
SPLITS = ("train", "valid", "test")


def load(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


load("split", EXAMPLES / "bible_es_en" / "split.py")
verses = load("verses", RECIPE / "verses.py")


def lines(path):
    return path.read_bytes().decode("utf-8").split("\n")[:-1]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """The shipped corpus, as the recipe splits it, to testaments and to books."""
    folder = tmp_path_factory.mktemp("text")
    for labels in verses.LABELS:
        verses.main([str(CORPUS), str(folder / labels), "--labels", labels])
    return folder


@pytest.fixture(scope="module")
def corpus():
    """Name of each verse to its English text, in the order of the corpus."""
    rows = lzma.decompress(CORPUS.read_bytes()).decode("utf-8").rstrip("\n").split("\n")
    columns = [row.split("\t") for row in rows]
    return {f"{book} {chapter}:{verse}": en for book, chapter, verse, _, en in columns}


def column(text, split, name, labels="testaments"):
    return lines(text / labels / f"{split}.{name}")


# --- splits -------------------------------------------------------------------------------


def test_a_chapter_is_in_one_split(text):
    chapters = [
        {name.rpartition(":")[0] for name in column(text, split, "verse")} for split in SPLITS
    ]
    assert not chapters[0] & chapters[1]
    assert not chapters[0] & chapters[2]
    assert not chapters[1] & chapters[2]
    for split, own in zip(SPLITS, chapters, strict=True):
        assert set(column(text, split, "group")) == own
    assert len(chapters[2]) == pytest.approx(0.1 * sum(map(len, chapters)), abs=2)


def test_a_text_is_in_one_split(text):
    texts = [
        {" ".join(verse.split()).casefold() for verse in column(text, split, "input0")}
        for split in SPLITS
    ]
    assert not texts[0] & texts[1]
    assert not texts[0] & texts[2]
    assert not texts[1] & texts[2]


def test_every_book_is_in_training_with_most_of_its_chapters(text, corpus):
    books = [Counter(column(text, split, "label", "books")) for split in SPLITS]
    everything = Counter(name.rpartition(" ")[0] for name in corpus)
    assert set(books[0]) == set(everything)
    assert len(everything) == 66
    for book in ("Obad", "Phlm", "2John", "3John", "Jude"):  # of one chapter
        assert not books[1][book]
        assert not books[2][book]


def test_verses_are_those_of_the_corpus_in_its_order_with_their_labels(text, corpus):
    place = {name: number for number, name in enumerate(corpus)}
    old = set(list(dict.fromkeys(name.rpartition(" ")[0] for name in corpus))[:39])
    for split in SPLITS:
        names = column(text, split, "verse")
        assert names == sorted(names, key=place.__getitem__)
        assert column(text, split, "input0") == [corpus[name] for name in names]
        books = [name.rpartition(" ")[0] for name in names]
        assert column(text, split, "label", "books") == books
        expected = ["old" if book in old else "new" for book in books]
        assert column(text, split, "label") == expected


def test_both_tasks_have_the_same_verses_and_a_seed_draws_them_again(text, tmp_path):
    for split in SPLITS:
        assert column(text, split, "verse") == column(text, split, "verse", "books")
    for seed in (1, 2):
        verses.main([str(CORPUS), str(tmp_path / f"{seed}"), "--seed", f"{seed}"])
    assert column(tmp_path, "test", "verse", "1") == column(text, "test", "verse")
    assert column(tmp_path, "test", "verse", "2") != column(text, "test", "verse")


def test_the_facts_are_those_that_the_readme_says(text):
    readme = (RECIPE / "README.md").read_text(encoding="utf-8")
    for line in lines(text / "testaments" / "facts.txt"):
        assert line in readme


def test_too_few_chapters_are_refused(tmp_path, capsys):
    (tmp_path / "small.tsv").write_text("Gen\t1\t1\tuno\tone\nGen\t2\t1\tdos\ttwo\n")
    with pytest.raises(SystemExit):
        verses.main([str(tmp_path / "small.tsv"), str(tmp_path / "out")])
    assert "2 chapters are too few: test has no verse" in capsys.readouterr().err


# --- the recipe ---------------------------------------------------------------------------


def run(script, *arguments, check=True):
    result = subprocess.run(
        [RECIPE / script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": preloaded.path(PATH), "OMP_NUM_THREADS": "1", "EVERY": "20"},
    )
    if check:
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """One verse of twenty."""
    folder = tmp_path_factory.mktemp("testaments")
    run("prepare.sh", "--output", folder, "--workers", 1)
    return folder


@pytest.mark.slow
def test_verses_become_words_in_small_letters_and_nothing_is_left_out(prepared):
    for split in SPLITS:
        texts, words = (lines(prepared / name / f"{split}.input0") for name in ("text", "tok"))
        assert len(texts) == len(words)
        for one, cut in zip(texts, words, strict=True):
            assert "".join(cut.split()) == "".join(one.lower().split())
    labels = lines(prepared / "data-bin" / "label" / "dict.txt")
    assert [label.split()[0] for label in labels] == ["new", "old"]
    assert not (prepared / "data-bin" / "input1").exists()
    assert run("prepare.sh", "--output", prepared).stdout.count("done before") == 3


@pytest.mark.slow
def test_a_folder_keeps_the_labels_that_it_was_prepared_with(tmp_path):
    run("prepare.sh", "--output", tmp_path, "--labels", "books", "--workers", 1)
    labels = lines(tmp_path / "data-bin" / "label" / "dict.txt")
    assert {label.split()[0] for label in labels} >= {"Gen", "1Cor", "Rev"}
    refused = run("prepare.sh", "--output", tmp_path, check=False)
    assert refused.returncode == 2
    assert "--labels is 'testaments'" in refused.stderr
    again = run("prepare.sh", "--output", tmp_path, "--labels", "books")
    assert again.stdout.count("done before") == 3


@pytest.mark.parametrize(
    ("label", "before", "given"), [("old", "testaments", "books"), ("Gen", "books", "testaments")]
)
def test_other_labels_than_those_of_the_folder_are_refused(label, before, given, tmp_path):
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / ".done").write_text("earlier settings\n")
    (tmp_path / "text" / "train.label").write_text(f"{label}\n")
    refused = run("prepare.sh", "--output", tmp_path, "--labels", given, check=False)
    assert refused.returncode == 2
    assert refused.stderr == (
        f"prepare.sh: error: option --labels is '{given}', and the folder {tmp_path} was prepared "
        f"with '{before}': give --output another folder, or --labels {before} (see --help)\n"
    )
    assert lines(tmp_path / "text" / "train.label") == [label]


@pytest.mark.slow
def test_models_are_held_side_by_side(prepared):
    options = ["--output", prepared, "--epochs", 1, "--cpu"]
    chosen = {}
    for model in ("softmax", "sparsemax"):
        run("train.sh", *options, model, *TINY)
        run("evaluate.sh", *options, model)
        folder = prepared / "runs" / f"{model}-1epochs"
        rows = [json.loads(line) for line in lines(folder / "test.predictions.jsonl")]
        words = sum(row["words"]["pooling"] for row in rows)
        chosen[model] = sum(len(row["pooling"]["pooling"]) for row in rows) / words
    assert chosen["sparsemax"] < chosen["softmax"] == 1
    settings = (prepared / "runs" / "sparsemax-1epochs" / "settings.txt").read_text()
    assert "--num-classes 2 --attn-mapping softmax --pooling-mapping sparsemax" in settings
    everything = run("report.sh", *options).stdout
    missing = "entmax15,entmax,fusedmax,oscarmax,sqpnormmax,all:sparsemax,all:entmax15,all:entmax"
    assert f"left out, as not trained for 1 epochs: {missing}\n" in everything
    with (prepared / "accuracy.tsv").open(encoding="utf-8", newline="") as file:
        table = {row["model"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert list(table) == ["commonest label", "naive Bayes", "softmax", "sparsemax"]
    labels = lines(prepared / "text" / "test.label")
    most = 100 * Counter(labels).most_common(1)[0][1] / len(labels)
    assert float(table["commonest label"]["accuracy"]) == pytest.approx(most, abs=0.005)
    for model in ("softmax", "sparsemax"):
        score = json.loads((prepared / f"runs/{model}-1epochs/test.accuracy.json").read_text())
        assert float(table[model]["accuracy"]) == pytest.approx(score["accuracy"], abs=0.005)
    again = run("report.sh", *options, "--models", "softmax,sparsemax").stdout
    assert again.count("done before") == 2
    assert (prepared / "compare" / "report.html").stat().st_size > 0


@pytest.fixture
def stubs(tmp_path):
    """Stamps, as if one model were trained and another one scored too."""
    for stamp in ("data-bin/.done", "runs/entmax-2epochs/.train.done"):
        (tmp_path / stamp).parent.mkdir(parents=True)
        (tmp_path / stamp).touch()
    (tmp_path / "runs" / "softmax-2epochs").mkdir()
    (tmp_path / "runs" / "softmax-2epochs" / ".scores.done").touch()
    return tmp_path


def test_a_report_names_what_is_trained_and_not_scored(stubs):
    said = run("report.sh", "--output", stubs, "--cpu", check=False).stdout
    assert "left out, as trained but not scored by evaluate.sh: entmax\n" in said
    assert "left out, as not trained for 2 epochs: sparsemax,entmax15,fusedmax," in said


def test_a_report_wants_every_model_that_is_named(stubs):
    command = ["--output", stubs, "--models", "softmax,entmax", "--cpu"]
    refused = run("report.sh", *command, check=False)
    assert refused.returncode == 1
    assert f"no scores of entmax in {stubs}/runs/entmax-2epochs" in refused.stderr
    assert "left out" not in refused.stdout


def test_a_report_of_no_model_is_an_error(stubs):
    refused = run("report.sh", "--output", stubs, "--epochs", 3, "--cpu", check=False)
    assert refused.returncode == 1
    assert f"no model of 3 epochs in {stubs}/runs is scored: run train.sh" in refused.stderr


def test_help_shows_models_as_the_option_takes_them():
    shown = run("report.sh", "--help").stdout
    assert "softmax,sparsemax,entmax15,entmax,fusedmax" in shown


def test_help_on_pruning_speaks_of_what_a_classifier_has():
    shown = run("prune.sh", "--help").stdout
    assert "all=N" in shown
    assert [word for word in ("decoder", "cross", "translat") if word in shown] == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--labels", "chapters"], "option --labels got 'chapters': give testaments or books"),
        (["--labels"], "option --labels needs a value"),
        (["--label", "books"], "use --output, --workers, --labels or --help"),
    ],
)
def test_a_wrong_option_is_named_with_the_remedy(arguments, message, tmp_path):
    refused = run("prepare.sh", "--output", tmp_path / "new", *arguments, check=False)
    assert refused.returncode == 2
    assert message in refused.stderr
    assert not (tmp_path / "new").exists()
