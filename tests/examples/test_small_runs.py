"""One small run with fairseq per kind of recipe: translation, summaries, LM, classification."""

import json
import math
import os
import re

import pytest

from tests import preloaded
from tests.examples import dry_runs, entailment_miniature, miniatures, summary_miniatures
from tests.examples.dry_runs import EXAMPLES, PATH, kill_when
from tests.examples.miniatures import lines

SIDES = ("encoder", "decoder")
TINY = [f"--{side}-{part}=32" for side in SIDES for part in ("embed-dim", "ffn-embed-dim")]

pytestmark = pytest.mark.slow


def run(*command, **further):
    environment = {"PATH": preloaded.path(PATH), **miniatures.TRIAL, **further}
    return dry_runs.run(*command, **environment).stdout


def losses(log):
    """loss and nll_loss by logged update; of an update that was logged twice, the last."""
    line = r"train_inner \| .* loss=([0-9.]+), nll_loss=([0-9.]+), .*num_updates=([0-9]+)"
    return {int(update): (float(loss), float(nll)) for loss, nll, update in re.findall(line, log)}


def test_two_killed_processes_train_as_one_process_with_larger_batches(tmp_path):
    few = {"TRIAL_PAIRS": "400,16,12", "BPE_SIZE": "300"}
    run("bible_es_en", "prepare.sh", "--output", tmp_path, "--workers", 1, **few)
    assert len(lines(tmp_path / "text" / "test.verse")) == 12
    shared = ["--output", tmp_path, "--cpu", "--epochs", 2, "--most-tokens", 313]
    model = ["entmax", "--dropout=0", "--log-interval=1", *TINY]
    run("bible_es_en", "train.sh", *shared, "--name", "one", *model)
    one = losses((tmp_path / "runs" / "one" / "train.log").read_text(encoding="utf-8"))
    two = [*shared, "--name", "two", "--processes", 2, *model]
    log = tmp_path / "runs" / "two" / "train.log"
    kill_when(
        lambda: log.exists() and re.search(r"epoch 002: +5 /", log.read_text("utf-8")),
        [EXAMPLES / "bible_es_en" / "train.sh", *two],
        {**os.environ, "PATH": PATH, "OMP_NUM_THREADS": "1"},
    )
    assert "resumes from its last checkpoint" in run("bible_es_en", "train.sh", *two)
    found = losses(log.read_text(encoding="utf-8"))
    assert len(found) == len(one) > 20
    for update, values in one.items():
        assert found[update] == pytest.approx(values, abs=2e-3), update


def test_stories_are_summarised_with_their_words_restored(tmp_path):
    table = miniatures.write("cnn_dm", tmp_path / "raw", summary_miniatures.WRITERS)
    given = {"RAW_DIR": str(table.parent), "CORPORA": str(table), "VOCABULARY": "words:300"}
    given["LAYERS"] = "2"
    given["GENERATION_OPTIONS"] = "--min-len 1 --max-len-b 12 --beam 2"
    out = tmp_path / "out"
    run("cnn_dm", "prepare.sh", "--output", out, "--workers", 1, **given)
    dictionary = [line.split()[0] for line in lines(out / "data-bin" / "dict.article.txt")]
    assert dictionary[-200:] == [f"<unk-{number}>" for number in range(200)]
    heads = [f"--{side}-attention-heads=4" for side in SIDES]
    options = ["--output", out, "--updates", 2, "--cpu"]
    run("cnn_dm", "train.sh", *options, "sparse-tl", *TINY, *heads, **given)
    printed = run("cnn_dm", "evaluate.sh", *options, "sparse-tl", **given)
    done = out / "runs" / "sparse-tl_sparsemax-2updates"
    assert len(lines(done / "test.hyp")) == summary_miniatures.STORIES["test"]
    assert "<unk-" not in (done / "test.generated").read_text(encoding="utf-8")
    scores = json.loads((done / "test.rouge.json").read_text(encoding="utf-8"))
    for name in ("rouge1", "rouge2", "rougeL"):
        interval = scores[name]["f1"]
        assert 0 <= interval["low"] <= interval["value"] <= interval["high"] <= 100
    assert f"ROUGE-1  {scores['rouge1']['f1']['value']:.2f} [" in printed


def test_softmax_matches_the_perplexity_of_fairseqs_own_model(tmp_path):
    few = {"TRIAL_PAIRS": "300,20,20", "GENERATION_OPTIONS": "--max-len-b 12"}
    run("bible_en_lm", "prepare.sh", "--output", tmp_path, "--workers", 1, **few)
    tiny = ["--decoder-embed-dim=32", "--decoder-ffn-embed-dim=32"]
    tiny += ["--decoder-input-dim=32", "--decoder-output-dim=32"]
    options = ["--output", tmp_path, "--updates", 2, "--cpu"]
    found = {}
    for model in ("stock", "softmax"):
        run("bible_en_lm", "train.sh", *options, model, *tiny, **few)
        run("bible_en_lm", "evaluate.sh", *options, model, **few)
        folder = tmp_path / "runs" / f"{model}-2updates"
        found[model] = json.loads((folder / "perplexity.json").read_text(encoding="utf-8"))
    assert list(found["stock"]) == ["verses", "blocks", "window"]
    assert found["stock"] == found["softmax"]
    for name, one in found["stock"].items():
        text = (folder / f"eval.{name}.log").read_text(encoding="utf-8")
        (logged,) = re.findall(r"Loss \(base 2\): ([0-9.]+), Perplexity", text)
        assert math.log2(one["subword_perplexity"]) == pytest.approx(float(logged), abs=1e-3)
    # Stopped after its last update but before the stamp, where fairseq would make another update
    for model in ("stock", "softmax"):
        folder = folder.with_name(f"{model}-2updates")
        (folder / ".train.done").unlink()
        before = (folder / "checkpoints" / "checkpoint_last.pt").read_bytes()
        run("bible_en_lm", "train.sh", *options, model, *tiny, **few)
        assert "nothing is left to train" in (folder / "train.log").read_text(encoding="utf-8")
        assert (folder / "checkpoints" / "checkpoint_last.pt").read_bytes() == before


def test_pairs_are_classified_and_the_selected_words_are_listed(tmp_path):
    table = entailment_miniature.write(tmp_path / "raw")
    given = {"RAW_DIR": str(table.parent), "CORPORA": str(table)}
    out = tmp_path / "out"
    run("snli", "prepare.sh", "--output", out, "--workers", 1, **given)
    options = ["--output", out, "--epochs", 2, "--cpu"]
    tiny = ["--encoder-embed-dim=32", "--encoder-ffn-embed-dim=32"]
    run("snli", "train.sh", *options, "fusedmax", *tiny, "--warmup-updates=4", "--lr=0.01", **given)
    printed = run("snli", "evaluate.sh", *options, "fusedmax", **given)
    folder = out / "runs" / "fusedmax-2epochs"
    rows = [json.loads(line) for line in lines(folder / "test.predictions.jsonl")]
    assert (folder / "words.txt").is_file()
    labels = lines(out / "text" / "test.label")
    right = sum(row["predicted"] == label for row, label in zip(rows, labels, strict=True))
    assert f"accuracy {100 * right / len(labels):.2f} %" in printed
    premises, hypotheses = (lines(out / "text" / f"test.input{number}") for number in (0, 1))
    for row, premise, hypothesis in zip(rows, premises, hypotheses, strict=True):
        words = [*premise.split(), *hypothesis.split()]
        assert row["words"] == len(words)
        # An unknown word appears as the model sees it
        assert {word for word, _ in row["selected"]} <= {*words, "<unk>"}
        assert sum(weight for _, weight in row["selected"]) < 1 + 1e-3
