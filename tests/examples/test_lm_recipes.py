"""The recipes for language models: from archives to the perplexity of a word, and what can go wrong."""

from __future__ import annotations

import csv
import json
import math
import re
import shutil
import subprocess

import pytest

from tests import preloaded
from tests.examples import lm_miniatures, miniatures
from tests.examples.serving import serve
from tests.examples.test_recipe_splits import split as verses
from tests.examples.test_recipes import (
    EXAMPLES,
    PATH,
    ROOT,
    contents,
    environment,
    kill_when,
    lines,
    run,
)

# A model of width 32, and cutoffs within the vocabulary of the miniatures
TINY = [
    *("--decoder-layers=2", "--decoder-attention-heads=4", "--decoder-embed-dim=32"),
    *("--decoder-input-dim=32", "--decoder-output-dim=32", "--decoder-ffn-embed-dim=32"),
]
ADAPTIVE = [*TINY, "--adaptive-input-cutoff=100,300", "--adaptive-softmax-cutoff=100,300"]
# An epoch of the miniature has about four updates
TRIAL = {"BLOCK_TOKENS": "64", "CONTEXT_WINDOW": "48", "GENERATION_OPTIONS": "--max-len-b 12"}
OPTIONS = ["--updates", 8, "--cpu"]
ON_THE_WAY = ["--warmup-updates=2", "--log-interval=1"]


@pytest.fixture(scope="module")
def wiki(tmp_path_factory):
    """WikiText-103 in miniature, downloaded from a server of this machine and prepared."""
    folder = tmp_path_factory.mktemp("wiki")
    raw = folder / "raw"
    table = lm_miniatures.write("wikitext103", raw)
    with serve(raw) as address:
        miniatures.write_table(raw, [raw / "wikitext-103-v1.zip"], address)
        options = ["--output", folder / "out", "--workers", 1]
        said = run("wikitext103", "prepare.sh", *options, CORPORA=str(table), **TRIAL).stdout
        (folder / "prepare.log").write_text(said, encoding="utf-8")
    return folder / "out"


def measured(run_folder):
    return json.loads((run_folder / "perplexity.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def trained(wiki):
    """A model of the miniature, trained at one go."""
    command = ["--output", wiki, *OPTIONS, "entmax", *ADAPTIVE, *ON_THE_WAY]
    said = run("wikitext103", "train.sh", *command, **TRIAL).stdout
    return wiki / "runs" / "entmax-8updates", said


@pytest.mark.slow
def test_the_texts_are_those_of_the_archive_and_every_word_is_in_the_dictionary(wiki, tmp_path):
    lm_miniatures.wikitext(tmp_path)
    shutil.unpack_archive(tmp_path / "wikitext-103-v1.zip", tmp_path)
    for split in ("train", "valid", "test"):
        original = (tmp_path / "wikitext-103" / f"wiki.{split}.tokens").read_bytes()
        assert (wiki / "text" / f"{split}.en").read_bytes() == original
    words = set((wiki / "text" / "train.en").read_text(encoding="utf-8").split())
    entries = {line.split()[0] for line in lines(wiki / "data-bin" / "dict.txt")}
    # <unk> is a word of fairseq's own
    assert words - {"<unk>"} <= entries
    assert {word for word in entries - words if not word.startswith("madeupword")} == set()


@pytest.mark.slow
def test_a_text_is_spoken_of_as_lines_not_as_pairs(wiki):
    said = (wiki.parent / "prepare.log").read_text(encoding="utf-8")
    assert "text: training, validation and test lines" in said
    assert "pairs" not in said


@pytest.mark.slow
def test_what_is_prepared_is_not_prepared_again(wiki):
    table = wiki.parent / "raw" / "corpora.tsv"
    said = run("wikitext103", "prepare.sh", "--output", wiki, CORPORA=str(table), **TRIAL).stdout
    assert said.count("done before") == 2
    assert "download" not in said


@pytest.mark.slow
def test_a_training_stopped_behind_its_last_update_makes_no_further_one(wiki, trained):
    folder, _ = trained
    checkpoints = folder / "checkpoints"
    before = {path.name: path.read_bytes() for path in checkpoints.iterdir()}
    (folder / ".train.done").unlink()
    command = ["--output", wiki, *OPTIONS, "entmax", *ADAPTIVE, *ON_THE_WAY]
    said = run("wikitext103", "train.sh", *command, **TRIAL).stdout
    assert "it had all its updates when it was stopped" in said
    assert {path.name: path.read_bytes() for path in checkpoints.iterdir()} == before
    assert (folder / ".train.done").exists()


@pytest.mark.slow
def test_a_language_model_has_the_settings_of_fairseqs_example(trained):
    folder, said = trained
    assert "24 x 64 tokens each" in said
    settings = (folder / "settings.txt").read_text(encoding="utf-8")
    example = (
        "--lr 1.0 --t-mult 2 --lr-period-updates 270000 --lr-scheduler cosine --lr-shrink 0.75 "
        "--warmup-updates 16000 --warmup-init-lr 1e-07 --stop-min-lr 1e-09 --optimizer nag "
        "--min-lr 0.0001 --clip-norm 0.1 --criterion adaptive_loss --seed 1 "
        "--sample-break-mode none --skip-invalid-size-inputs-valid-test"
    )
    for option in re.findall(r"--\S+(?: [^-]\S*)?", example):
        assert f" {option.strip()}" in settings
    assert "--arch entmax_transformer_lm_wiki103 " in settings


@pytest.mark.slow
def test_a_trained_model_has_its_perplexity_beside_the_published_number(trained):
    folder, _ = trained
    command = ["--output", folder.parents[1], *OPTIONS, "entmax"]
    printed = run("wikitext103", "evaluate.sh", *command, **TRIAL).stdout
    found = measured(folder)["window"]
    text = (folder.parents[1] / "text" / "test.en").read_text(encoding="utf-8")
    assert (found["words"], found["lines"]) == (len(text.split()), text.count("\n"))
    # Nothing is cut into subwords
    assert found["subwords"] == found["words"] + found["lines"]
    log = (folder / "eval.window.log").read_text(encoding="utf-8")
    (logged,) = re.findall(r"Loss \(base 2\): ([0-9.]+), Perplexity", log)
    assert math.log2(found["word_perplexity"]) == pytest.approx(float(logged), abs=1e-4)
    assert f"{found['word_perplexity']:.2f}" in printed
    assert "18.70" in printed
    assert "subword" not in (folder / "scores.txt").read_text(encoding="utf-8")
    samples = lines(folder / "samples.txt")
    assert len(samples) == 5
    prompts = [" ".join(line.split()[:8]) for line in text.split("\n")]
    assert all(any(sample.startswith(prompt) for prompt in prompts if prompt) for sample in samples)
    assert "learned: mean" in (folder / "alpha.txt").read_text(encoding="utf-8")
    again = run("wikitext103", "evaluate.sh", *command, **TRIAL).stdout
    assert again.count("done before") == 4


@pytest.mark.slow
def test_a_training_that_was_killed_ends_as_one_that_was_not(trained, tmp_path):
    folder, _ = trained
    for part in ("data-bin", "text"):
        shutil.copytree(folder.parents[1] / part, tmp_path / part)
    command = ["--output", tmp_path, *OPTIONS, "entmax", *ADAPTIVE, *ON_THE_WAY]
    stopped = tmp_path / "runs" / folder.name
    train = EXAMPLES / "wikitext103" / "train.sh"
    kill_when(stopped / "train.log", r"epoch 002: +1 /", [train, *command], **TRIAL)
    assert not (stopped / ".train.done").exists()
    again = run("wikitext103", "train.sh", *command, **TRIAL).stdout
    assert "goes on from its last checkpoint" in again
    for place in (folder, stopped):
        run("wikitext103", "evaluate.sh", "--output", place.parents[1], *OPTIONS, "entmax", **TRIAL)
    assert measured(stopped) == measured(folder)
    assert (stopped / "alpha.txt").read_bytes() == (folder / "alpha.txt").read_bytes()


@pytest.mark.slow
def test_a_language_model_is_pruned_judged_and_goes_on_with_a_text(trained):
    folder, _ = trained
    options = ["--output", folder.parents[1], *OPTIONS]
    options += ["--search-updates", 6, "--recovery-updates", 4, "--budgets", "all=3"]
    trial = {**TRIAL, "PRUNE_LAYERS": "2", "PRUNE_HEADS": "4"}
    run("wikitext103", "prune.sh", *options, "--", *ADAPTIVE, *ON_THE_WAY, **trial)
    with (folder.parents[1] / "pruning.tsv").open(encoding="utf-8", newline="") as file:
        rows = {row["model"]: row for row in csv.DictReader(file, delimiter="\t")}
    assert [rows[name]["decoder-self"].split()[0] for name in ("baseline", "all3-pruned")] == [
        "8",
        "3",
    ]
    pruned = folder.parent / "prune-entmax-all3-pruned"
    assert rows["all3-pruned"]["window"] == f"{measured(pruned)['window']['word_perplexity']:.2f}"
    assert len(lines(pruned / "samples.txt")) == 5


# --- the shipped corpus ---------------------------------------------------------


@pytest.fixture(scope="module")
def bible(tmp_path_factory):
    """The shipped corpus, prepared."""
    folder = tmp_path_factory.mktemp("bible")
    run("bible_en_lm", "prepare.sh", "--output", folder, "--workers", 1)
    return folder


@pytest.fixture(scope="module")
def few_verses(bible, tmp_path_factory):
    """The first verses of each split, as prepare.sh leaves them."""
    folder = tmp_path_factory.mktemp("verses")
    for part in ("text", "spm"):
        (folder / part).mkdir()
        for split, number in (("train", 300), ("valid", 20), ("test", 20)):
            some = lines(bible / part / f"{split}.en")[:number]
            text = "".join(f"{line}\n" for line in some)
            (folder / part / f"{split}.en").write_text(text, encoding="utf-8")
    texts = [f"--{split}pref={folder / 'spm' / split}.en" for split in ("train", "valid", "test")]
    dictionary = f"--srcdict={bible / 'data-bin' / 'dict.txt'}"
    command = ["--only-source", *texts, dictionary, f"--destdir={folder / 'data-bin'}"]
    preloaded.run("fairseq-preprocess", command, environment(), capture_output=True, check=True)
    (folder / "data-bin" / ".done").touch()
    return folder


@pytest.mark.slow
def test_the_verses_of_each_split_are_those_of_the_translation(bible):
    corpus = [x for x in verses.read_verses(miniatures.CORPUS) if verses.is_translation(x)]
    for name, part in verses.split_verses(corpus, 1000, 1000, 1).items():
        assert lines(bible / "text" / f"{name}.en") == [verse.en for verse in part]


@pytest.mark.slow
def test_softmax_has_the_perplexity_of_fairseqs_own_model_each_way(few_verses):
    options = ["--output", few_verses, "--updates", 2, "--cpu"]
    for model in ("stock", "softmax"):
        run("bible_en_lm", "train.sh", *options, model, *TINY)
        run("bible_en_lm", "evaluate.sh", *options, model)
    runs = few_verses / "runs"
    stock, softmax = (measured(runs / f"{name}-2updates") for name in ("stock", "softmax"))
    assert list(stock) == ["verses", "blocks", "window"]
    assert stock == softmax
    assert not (runs / "stock-2updates" / "alpha.txt").exists()
    pieces = (few_verses / "spm" / "test.en").read_text(encoding="utf-8")
    for found in stock.values():
        assert (found["lines"], found["unknown"]) == (20, 0)
        assert found["subwords"] == len(pieces.split()) + 20 > found["words"] + 20
        expected = math.exp(found["nats"] / (found["words"] + 20))
        assert found["word_perplexity"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_hydra_trains_from_the_config(few_verses, tmp_path):
    command = [
        shutil.which("fairseq-hydra-train", path=preloaded.path(PATH)),
        "--config-dir", EXAMPLES / "bible_en_lm" / "configs", "--config-name", "entmax",
        f"common.user_dir={ROOT / 'fairseq_entmax'}", "common.cpu=true",
        f"task.data={few_verses / 'data-bin'}", f"checkpoint.save_dir={tmp_path / 'saved'}",
        "optimization.max_update=2",
    ]  # fmt: skip
    result = subprocess.run(
        list(map(str, command)), cwd=tmp_path, capture_output=True, text=True, check=False,
        env=environment(),
    )  # fmt: skip
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert (tmp_path / "saved" / "checkpoint_best.pt").exists()


# --- what can go wrong ----------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "arguments", "further", "message"),
    [
        ("prepare.sh", [], {"BLOCK_TOKENS": "none"}, "BLOCK_TOKENS got 'none': give a whole"),
        ("prepare.sh", [], {"CONTEXT_WINDOW": "3072"}, "CONTEXT_WINDOW is '3072': give less than"),
        ("train.sh", ["stok"], {}, "the mapping got 'stok'"),
        ("evaluate.sh", ["stock", "more"], {}, "unknown argument 'more' after the mapping"),
        ("prune.sh", ["--budgets", "all=129"], {}, "give all=N with N up to 128"),
        ("prune.sh", ["--budgets", "encoder=4"], {}, "give all=N with N up to 128"),
    ],
)
def test_a_wrong_setting_is_named(script, arguments, further, message, tmp_path):
    (tmp_path / "data-bin").mkdir()
    (tmp_path / "data-bin" / ".done").touch()
    before = contents(tmp_path)
    command = ["--output", tmp_path, *arguments]
    result = run("wikitext103", script, *command, check=False, **further)
    assert result.returncode == 2
    assert message in result.stderr
    assert contents(tmp_path) == before


@pytest.mark.parametrize("recipe", ["bible_en_lm", "wikitext103"])
def test_help_on_pruning_speaks_of_what_a_language_model_has(recipe):
    shown = run(recipe, "prune.sh", "--help").stdout
    assert "all=N" in shown
    assert [word for word in ("encoder", "cross", "translat") if word in shown] == []


def test_another_archive_is_refused_by_its_checksum(tmp_path):
    table = lm_miniatures.write("wikitext103", tmp_path / "raw")
    archive = tmp_path / "raw" / "wikitext-103-v1.zip"
    archive.write_bytes(archive.read_bytes()[:-1] + b"x")
    further = {"RAW_DIR": str(archive.parent), "CORPORA": str(table)}
    out = ["--output", tmp_path / "out"]
    result = run("wikitext103", "prepare.sh", *out, check=False, **further)
    assert result.returncode == 1
    assert f"{archive} has the sha256 checksum" in result.stderr
    assert contents(tmp_path / "out") == {}


def test_every_published_number_is_in_the_readme():
    published = (EXAMPLES / "wikitext103" / "published.txt").read_text(encoding="utf-8")
    readme = (EXAMPLES / "wikitext103" / "README.md").read_text(encoding="utf-8")
    assert "not run" not in published  # it stands beneath a result
    numbers = re.findall(r"\d+\.\d\d", published)
    assert numbers
    assert [number for number in numbers if number not in readme] == []
