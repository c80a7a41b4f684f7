"""The examples of docs/extending.md, as printed: a custom mapping, gate, measure and model."""

import json
import math
import re
from types import SimpleNamespace

import pytest
import torch

from fairseq_entmax.head_records import read_record
from tests.commands import ROOT, SMALL_MODEL, TRAINING, hypotheses, logged, loss_in_bits, run

MOST_LINES = 40


def write_example(folder, name):
    """Write a file of the chapter, and return the folder to give as --user-dir."""
    text = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n# (\S+)\n(.*?)```", text, re.DOTALL)
    (code,) = [code for path, code in blocks if path == f"{name}/__init__.py"]
    assert code.count("\n") < MOST_LINES
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text(code, encoding="utf-8")
    return folder / name


# -- a mapping with a strength per head, and no alpha -----------------------------------------


@pytest.fixture(scope="module")
def scaled(data, tmp_path_factory):
    """The chapter's mapping, trained with gates from a stock checkpoint, and pruned."""
    folder = tmp_path_factory.mktemp("scaled")
    user_dir = f"--user-dir={write_example(folder, 'my_heads')}"

    def train(save_dir, *options):
        words = [user_dir, *SMALL_MODEL, *TRAINING, f"--save-dir={save_dir}", *options]
        return run("fairseq-train", data / "bin", *words)

    stock = folder / "stock" / "checkpoint_best.pt"
    train(stock.parent, "--arch=transformer", "--max-update=4")
    log = train(
        folder / "gated",
        *("--arch=entmax_transformer", "--attn-mapping=scaled", f"--finetune-from-model={stock}"),
        *("--criterion=label_smoothed_cross_entropy_with_head_l0", "--target-heads=5"),
        *("--head-gates=encoder-self,cross", "--max-update=12", "--alpha-log-interval=4"),
    )
    gated, small = folder / "gated" / "checkpoint_best.pt", folder / "gated" / "small.pt"
    run("fairseq-entmax", "prune", user_dir, gated, "--output", small)
    return SimpleNamespace(user_dir=user_dir, stock=stock, log=log, gated=gated, small=small)


def strengths(path):
    weights = torch.load(path)["model"]
    return {key: value.exp() for key, value in weights.items() if key.endswith("log_strength")}


def test_a_strength_is_learned_logged_recorded_and_printed(scaled):
    output = scaled.log.stdout + scaled.log.stderr
    assert "has no value for 6 learned parameters; they start as in a new model" in output
    learned = strengths(scaled.gated)
    assert all((value != 1).all() for value in learned.values())
    mean = torch.cat([value for key, value in learned.items() if "encoder." in key]).mean().item()
    last = logged(scaled.log, "train")[-1]
    assert float(last["train_strength_encoder_self_mean"]) == pytest.approx(mean, abs=1e-3)
    record = read_record(scaled.gated.parent / "strength.jsonl", "strength")
    assert [line["update"] for line in record] == [0, 4, 8, 12]
    assert record[0]["strength"]["cross"]["1"] == [1.0] * 4
    assert record[-1]["strength"]["cross"]["1"] != [1.0] * 4
    assert not (scaled.gated.parent / "alpha.jsonl").exists()
    command = ["fairseq-entmax", "alpha", scaled.user_dir, scaled.gated]
    rows = json.loads(run(*command, "--json").stdout)
    (row,) = [row for row in rows if (row["attention"], row["layer"]) == ("cross", 1)]
    expected = learned["decoder.layers.1.encoder_attn.mapping.log_strength"].tolist()
    assert row["strength"] == pytest.approx(expected, rel=1e-6)
    assert (row["mapping"], row["learned"], row["heads"]) == ("scaled", True, 4)
    table = run(*command).stdout
    assert "strength of each head" in table
    assert "alpha" not in table


def test_a_strength_is_pruned_with_its_head_and_analysed_under_its_name(data, scaled, tmp_path):
    before, after = strengths(scaled.gated), strengths(scaled.small)
    assert sum(values.numel() for values in after.values()) == 5 + 8
    for key, values in after.items():
        assert set(values.tolist()) <= set(before[key].tolist())
    outputs = [
        run(
            *("fairseq-generate", data / "bin", scaled.user_dir, f"--path={path}"),
            *("--beam=2", "--max-len-b=20"),
        ).stdout
        for path in (scaled.gated, scaled.small)
    ]
    assert hypotheses(outputs[0])
    assert hypotheses(outputs[0]) == hypotheses(outputs[1])
    own = [scaled.user_dir, f"--path={scaled.small}:{scaled.stock}", f"--output={tmp_path}"]
    run("fairseq-entmax", "analyze", data / "bin", *own, "--cpu")
    model = json.loads((tmp_path / "analysis.json").read_text())["models"][0]
    for layer in model["attentions"]:
        side = "encoder" if layer["attention"] == "encoder-self" else "decoder"
        name = "encoder_attn" if layer["attention"] == "cross" else "self_attn"
        found = [head["values"] for head in layer["heads"]]
        key = f"{side}.layers.{layer['layer']}.{name}.mapping.log_strength"
        expected = after.pop(key, torch.zeros(0)).tolist()
        assert [value["strength"] for value in found] == pytest.approx(expected, abs=1e-5)
        assert all(set(value) == {"strength"} for value in found)
    assert not any(values.numel() for values in after.values())
    run("fairseq-entmax", "report", tmp_path / "analysis.json", "--output", tmp_path / "page.html")
    assert '"strength":' in (tmp_path / "page.html").read_text(encoding="utf-8")


# -- a gate ---------------------------------------------------------------------------------


def test_the_gate_of_the_chapter_is_trained_decided_and_pruned(data, scaled, tmp_path):
    user_dir = f"--user-dir={write_example(tmp_path, 'my_gates')}"
    log = run(
        *("fairseq-train", data / "bin", user_dir, *SMALL_MODEL, *TRAINING, "--max-update=8"),
        *("--arch=entmax_transformer", "--attn-mapping=softmax", "--gate=coin", "--gate-init=1"),
        *("--head-gates=cross", "--target-heads=3", f"--finetune-from-model={scaled.stock}"),
        *("--criterion=label_smoothed_cross_entropy_with_head_l0", f"--save-dir={tmp_path}"),
    )
    assert float(logged(log, "valid")[-1]["valid_heads_open"]) == 3
    gated, small = tmp_path / "checkpoint_last.pt", tmp_path / "small.pt"
    weights = [
        value for name, value in torch.load(gated)["model"].items() if name.endswith("gate.weight")
    ]
    assert torch.cat(weights).unique().numel() == 8  # each gate has learned a different value
    run("fairseq-entmax", "prune", user_dir, gated, "--output", small)
    smaller = torch.load(small)["model"]["decoder.layers.1.encoder_attn.q_proj.weight"]
    assert smaller.size(0) < 32


# -- a measure ------------------------------------------------------------------------------


def test_the_measure_of_the_chapter_is_computed_printed_and_drawn(data, scaled, tmp_path):
    user_dir = write_example(tmp_path, "my_measures")
    options = [f"--user-dir={user_dir}", f"--path={scaled.stock}", f"--output={tmp_path}/analysis"]
    measures = "--measures=first_token,density"
    table = run("fairseq-entmax", "analyze", data / "bin", *options, measures, "--cpu").stdout
    assert "first-token" in table
    file = tmp_path / "analysis" / "analysis.json"
    layers = json.loads(file.read_text())["models"][0]["attentions"]
    heads = [head for layer in layers for head in layer["heads"]]
    assert len(heads) == 24
    assert all(0 < head["first_token"] < 1 for head in heads)
    run("fairseq-entmax", "report", file, "--output", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "mean weight of a query on the first token of the sentence" in page


# -- a model with only a decoder ------------------------------------------------------------


def test_the_language_model_of_the_chapter_is_trained_and_pruned(data, tmp_path):
    user_dir = write_example(tmp_path, "my_lm")
    prefixes = [f"--{split}pref={data / split}.bpe.en" for split in ("train", "valid")]
    run("fairseq-preprocess", "--only-source", *prefixes, f"--destdir={tmp_path / 'bin'}")
    run(
        *("fairseq-train", tmp_path / "bin", "--task=language_modeling", f"--user-dir={user_dir}"),
        *("--arch=my_lm", "--decoder-layers=2", "--decoder-embed-dim=32"),
        *("--decoder-ffn-embed-dim=32", "--decoder-attention-heads=4", "--optimizer=adam"),
        *("--criterion=cross_entropy_with_head_l0", "--head-gates=decoder-self"),
        *("--target-heads=3", "--lr=0.003", "--tokens-per-sample=64", "--max-tokens=512"),
        *("--max-update=8", "--num-workers=0", f"--save-dir={tmp_path / 'lm'}"),
    )
    gated, small = tmp_path / "lm" / "checkpoint_last.pt", tmp_path / "small.pt"
    run("fairseq-entmax", "prune", f"--user-dir={user_dir}", gated, "--output", small)
    rows = json.loads(
        run("fairseq-entmax", "alpha", f"--user-dir={user_dir}", small, "--json").stdout
    )
    without = run("fairseq-entmax", "alpha", small, check=False).stderr
    assert "has the model my_lm: only models of fairseq-entmax and of your --user-dir" in without
    assert [row["attention"] for row in rows] == ["decoder-self"] * 2
    assert sum(row["heads"] for row in rows) == 3
    losses = []
    for path in (gated, small):
        given = [f"--path={path}", "--gen-subset=valid", "--task=language_modeling"]
        given += [f"--user-dir={user_dir}", "--tokens-per-sample=64"]
        losses.append(loss_in_bits(run("fairseq-eval-lm", tmp_path / "bin", *given)))
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)
    analyzed = ["analyze", tmp_path / "bin", "--task=language_modeling", f"--user-dir={user_dir}"]
    given = [f"--path={small}", f"--output={tmp_path / 'analysis'}", "--relevance-sentences=1"]
    run("fairseq-entmax", *analyzed, *given, "--cpu")
    (model,) = json.loads((tmp_path / "analysis" / "analysis.json").read_text())["models"]
    assert model["loss"] / math.log(2) == pytest.approx(losses[1], abs=1e-3)
