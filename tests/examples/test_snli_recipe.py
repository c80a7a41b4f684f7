"""examples/snli from end to end on a miniature of its archive."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import preloaded
from tests.examples import entailment_miniature as miniature

RECIPE = Path(__file__).resolve().parents[2] / "examples" / "snli"
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
TINY = ["--encoder-embed-dim=32", "--encoder-ffn-embed-dim=32", "--warmup-updates=4", "--lr=0.01"]
LENGTH = ["--epochs", 2, "--cpu"]


def environment(**further):
    return {**os.environ, "PATH": PATH, "OMP_NUM_THREADS": "1", **further}


def run(script, *arguments, check=True, **further):
    result = subprocess.run(
        [RECIPE / script, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=environment(**{"PATH": preloaded.path(PATH), "PAIRS": miniature.PAIRS, **further}),
    )
    if check:
        assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    return result


def lines(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """The miniature archive, as the recipe is told of it."""
    folder = tmp_path_factory.mktemp("raw")
    return {"CORPORA": str(miniature.write(folder)), "RAW_DIR": str(folder)}


@pytest.fixture(scope="module")
def prepared(raw, tmp_path_factory):
    folder = tmp_path_factory.mktemp("snli")
    run("prepare.sh", "--output", folder, "--workers", 1, **raw)
    return folder


@pytest.fixture(scope="module")
def trained(prepared):
    """Classifiers whose premise is attended to by softmax and by fusedmax, and both scored."""
    for model in ("softmax", "fusedmax"):
        run("train.sh", "--output", prepared, *LENGTH, model, *TINY)
        run("evaluate.sh", "--output", prepared, *LENGTH, model)
    return prepared


def run_of(folder, model):
    return folder / "runs" / f"{model}-2epochs"


# --- data ---------------------------------------------------------------------------------


def test_the_data_are_the_pairs_with_a_label_for_the_task_of_fairseq(prepared, raw):
    again = run("prepare.sh", "--output", prepared, "--workers", 1, **raw).stdout
    assert again.count("done before") == 2
    sizes = [
        len(lines(prepared / "text" / f"{split}.label")) for split in ("train", "valid", "test")
    ]
    assert "/".join(map(str, sizes)) == miniature.PAIRS
    words = [
        (prepared / "data-bin" / name / "dict.txt").read_text() for name in ("input0", "input1")
    ]
    assert words[0] == words[1]
    labels = lines(prepared / "data-bin" / "label" / "dict.txt")
    assert [label.split()[0] for label in labels] == ["contradiction", "entailment", "neutral"]
    for split in ("train", "valid", "test"):
        for name in ("input0", "input1", "label"):
            assert (prepared / "data-bin" / name / f"{split}.idx").stat().st_size > 0


def test_another_archive_than_the_published_one_is_refused(raw, tmp_path):
    given = {**raw, "PAIRS": "549367/9842/9824"}
    refused = run("prepare.sh", "--output", tmp_path / "out", check=False, **given)
    assert refused.returncode == 1
    assert "549367 are expected: it is another version" in refused.stderr
    assert not (tmp_path / "out" / "text").exists()


def test_the_table_of_archives_has_that_of_snli():
    rows = [line.split("\t") for line in lines(RECIPE.parent / "corpora.tsv")]
    (own,) = [row for row in rows if row[0] == "snli_1.0.zip"]
    assert len(own) == len(rows[0])
    assert own[1] == "94550081"
    assert len(own[2].removeprefix("sha256:")) == 64
    assert own[3].startswith("https://nlp.stanford.edu/")


# --- models -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_is_scored_with_intervals_beside_what_is_published(trained):
    printed = run("evaluate.sh", "--output", trained, *LENGTH, "fusedmax").stdout
    assert printed.count("done before") == 3
    score = json.loads((run_of(trained, "fusedmax") / "test.accuracy.json").read_text())
    rows = [
        json.loads(line) for line in lines(run_of(trained, "fusedmax") / "test.predictions.jsonl")
    ]
    labels = lines(trained / "text" / "test.label")
    right = sum(row["predicted"] == label for row, label in zip(rows, labels, strict=True))
    assert score["accuracy"] == pytest.approx(100 * right / len(labels))
    assert score["groups"] == len(set(lines(trained / "text" / "test.group"))) < len(labels)
    assert f"accuracy {score['accuracy']:.2f} %" in printed
    assert "fusedmax 82.41" in printed


@pytest.mark.slow
def test_the_mapping_is_that_of_the_premise_and_the_hypothesis_keeps_softmax(trained):
    settings = (run_of(trained, "fusedmax") / "settings.txt").read_text()
    said = "--num-classes 3 --attn-mapping softmax --pair-attention --pooling-mapping softmax"
    assert f"{said} --pair-mapping fusedmax" in settings
    rows = [
        json.loads(line) for line in lines(run_of(trained, "fusedmax") / "test.predictions.jsonl")
    ]
    premises = lines(trained / "text" / "test.input0")
    hypotheses = lines(trained / "text" / "test.input1")
    for row, premise, hypothesis in zip(rows, premises, hypotheses, strict=True):
        pooling = row["pooling"]
        assert [word for word, _ in pooling["hypothesis"]] == hypothesis.split()
        assert {word for word, _ in pooling["premise"]} <= set(premise.split())
        assert sum(weight for _, weight in pooling["premise"]) == pytest.approx(1, abs=2e-3)


@pytest.mark.slow
def test_all_makes_the_encoder_sparse_too(prepared):
    run("train.sh", "--output", prepared, *LENGTH, "all:entmax15", *TINY)
    settings = (prepared / "runs" / "all_entmax15-2epochs" / "settings.txt").read_text()
    said = "--attn-mapping entmax15 --pair-attention --pooling-mapping entmax15"
    assert f"{said} --pair-mapping entmax15" in settings
    run("evaluate.sh", "--output", prepared, *LENGTH, "all:entmax15")
    alphas = (prepared / "runs" / "all_entmax15-2epochs" / "alpha.txt").read_text()
    assert "entmax15 (fixed)" in alphas


@pytest.mark.slow
def test_a_classifier_is_pruned(trained):
    options = [
        "--output",
        trained,
        *LENGTH,
        "--search-updates",
        6,
        "--recovery-updates",
        4,
        "--budgets",
        "all=3",
    ]
    run("prune.sh", *options, "--", *TINY, "--batch-size=18")  # six updates in the epoch
    with (trained / "pruning.tsv").open(encoding="utf-8", newline="") as file:
        rows = {row["model"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert list(rows) == ["baseline", "all3-pruned"]
    assert rows["baseline"]["encoder-self"] == "8 (4,4)"
    pruned = rows["all3-pruned"]
    assert pruned["encoder-self"].split()[0] == "3"
    assert not {"decoder-self", "cross"} & set(pruned)
    assert 0 <= float(pruned["accuracy"]) <= 100


@pytest.mark.slow
def test_a_training_that_is_killed_goes_on_where_it_was(prepared):
    """Killed in the second of its epochs, behind the first checkpoint."""
    name, last = "killed", prepared / "runs" / "killed" / "checkpoints" / "checkpoint_last.pt"
    arguments = ["--output", prepared, "--name", name, "--epochs", 40, "--cpu", "softmax", *TINY]
    process = subprocess.Popen(
        [RECIPE / "train.sh", *map(str, arguments)],
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not last.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (prepared / "runs" / name / ".train.done").exists()
    again = run("train.sh", *arguments).stdout
    assert "goes on from its last checkpoint" in again
    assert "Loaded checkpoint" in again
    assert (prepared / "runs" / name / ".train.done").exists()


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        ("train.sh", ["fusedmin"], "the mapping got 'fusedmin'"),
        ("train.sh", ["all:nothing"], "the mapping got 'nothing': unknown mapping"),
        ("train.sh", ["softmax", "--attn-mapping", "entmax"], "option --attn-mapping is set"),
        ("prepare.sh", ["--labels", "books"], "unknown option '--labels'"),
        ("report.sh", ["--models", "softmax,nothing"], "option --models got 'nothing'"),
        ("report.sh", ["--models", "softmax, fusedmax"], "put commas between the models, and no"),
        ("report.sh", ["--models", "softmax", "fusedmax"], "unknown argument 'fusedmax': leave it"),
        ("report.sh", ["--models", ""], "option --models got '': give models such as softmax,"),
        ("prune.sh", ["--budgets", "4/-/-"], "give all=N with N up to 8"),
        ("report.sh", ["--model", "softmax"], "unknown option '--model'"),
    ],
)
def test_a_wrong_option_is_named_with_the_remedy(script, arguments, message, prepared):
    refused = run(script, "--output", prepared, *arguments, check=False)
    assert refused.returncode == 2
    assert message in refused.stderr
