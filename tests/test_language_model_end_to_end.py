"""Language models through fairseq's own commands, on the English side of a slice of the corpus."""

import re
from types import SimpleNamespace

import pytest
import torch
from fairseq.models.transformer_lm import TransformerLanguageModel

from fairseq_entmax.models import EntmaxTransformerLanguageModel
from fairseq_entmax.models.head_record import read_record
from tests.commands import USER_DIR, logged, run, weights

pytestmark = pytest.mark.slow

MODEL = [
    "--decoder-layers=2",
    "--decoder-embed-dim=32",
    "--decoder-ffn-embed-dim=32",
    "--decoder-attention-heads=4",
    "--share-decoder-input-output-embed",
]
TRAINING = [
    "--task=language_modeling",
    "--optimizer=adam",
    "--lr=0.003",
    "--tokens-per-sample=128",
    "--max-tokens=768",
    "--required-batch-size-multiple=1",
    "--num-workers=0",
    "--no-epoch-checkpoints",
    "--log-format=json",
    "--log-interval=1",
    "--seed=3",
]
BUDGET = 3
GATED = [
    "--criterion=cross_entropy_with_head_l0",
    "--head-gates=decoder-self",
    f"--target-heads={BUDGET}",
    "--decide-heads-at=12",
    "--max-update=16",
]


def options_of(text, save_dir, *options, arch="entmax_transformer_lm_gpt"):
    own = [f"--user-dir={USER_DIR}", f"--arch={arch}", f"--save-dir={save_dir}"]
    return [text, *own, *MODEL, *TRAINING, *options]


def train(text, save_dir, *options, **kwargs):
    return run("fairseq-train", *options_of(text, save_dir, *options, **kwargs))


def evaluate(text, path, *options):
    """The loss of a token in bits, and the output."""
    given = [f"--path={path}", "--task=language_modeling", "--tokens-per-sample=128", *options]
    result = run("fairseq-eval-lm", text, f"--user-dir={USER_DIR}", *given)
    output = result.stdout + result.stderr
    return float(re.search(r"Loss \(base 2\): ([\d.]+)", output)[1]), output


def continued(text, path, lines="<prefix>\n", *options):
    """What the model writes after each line."""
    given = [f"--path={path}", "--task=language_modeling", "--beam=3", "--max-len-b=20", *options]
    return run("fairseq-interactive", text, f"--user-dir={USER_DIR}", *given, stdin=lines).stdout


@pytest.fixture(scope="module")
def gated(text, tmp_path_factory):
    """A model trained to a budget of heads, and what pruning made of it."""
    folder = tmp_path_factory.mktemp("gated")
    log = train(text, folder / "straight", *GATED)
    path, small = folder / "straight" / "checkpoint_last.pt", folder / "small.pt"
    report = run("fairseq-entmax", "prune", path, "--output", small)
    return SimpleNamespace(folder=folder, log=log, path=path, small=small, report=report.stdout)


def lines_of(data, number=4):
    """The first three pieces of some verses."""
    verses = (data / "test.bpe.en").read_text(encoding="utf-8").splitlines()[:number]
    return "".join(" ".join(verse.split()[:3]) + "\n" for verse in verses)


# -- the control -------------------------------------------------------------------------


def test_a_model_with_softmax_is_fairseqs_in_training_evaluation_and_generation(
    data, text, tmp_path
):
    logs, evaluated, written = [], [], []
    for name, arch, options in (
        ("stock", "transformer_lm_gpt", []),
        ("ours", "entmax_transformer_lm_gpt", ["--attn-mapping=softmax"]),
    ):
        log = train(text, tmp_path / name, "--max-update=6", *options, arch=arch)
        logs.append([line["loss"] for line in logged(log, "train_inner")])
        path = tmp_path / name / "checkpoint_last.pt"
        loss, output = evaluate(text, path, "--output-word-probs", "--context-window=8")
        words = re.findall(r"\S+ \[-\d+\.\d+\]", output)
        evaluated.append((loss, words))
        written.append(re.findall(r"^[HP]-.*", continued(text, path, lines_of(data)), re.M))
    assert len(logs[0]) == 6
    assert logs[0] == logs[1]
    ours, stock = (weights(tmp_path / name / "checkpoint_last.pt") for name in ("ours", "stock"))
    assert ours.keys() == stock.keys()
    assert all(torch.equal(ours[name], value) for name, value in stock.items())
    assert len(evaluated[0][1]) > 1000
    assert evaluated[0] == evaluated[1]
    assert len(written[0]) == 8
    assert written[0] == written[1]


# -- gates, pruning and what comes after ---------------------------------------------------


def test_a_training_ends_with_the_budget_and_its_pruned_model_has_the_same_losses(text, gated):
    assert float(logged(gated.log, "valid")[-1]["valid_heads_open"]) == BUDGET
    assert re.search(rf"^heads decoder-self +8 +{BUDGET}  ", gated.report, re.MULTILINE)
    for options in ([], ["--sample-break-mode=eos"]):
        before, _ = evaluate(text, gated.path, *options)
        after, _ = evaluate(text, gated.small, *options)
        assert after == pytest.approx(before, abs=1e-4)
        assert 0 < after < 9


def test_training_goes_on_from_the_pruned_model_with_its_heads(text, gated, tmp_path):
    printed = run("fairseq-entmax", "prune", gated.small, "--print-config").stdout
    counts = re.search(r"--decoder-self-attn-heads (\S+)", printed)[1]
    start = f"--finetune-from-model={gated.small}"
    for name, options in (("told", [f"--decoder-self-attn-heads={counts}"]), ("taken", [])):
        train(text, tmp_path / name, start, "--max-update=2", *options)
    told, taken = (weights(tmp_path / n / "checkpoint_last.pt") for n in ("told", "taken"))
    assert all(torch.equal(told[name], value) for name, value in taken.items())
    rows = sum(v.size(0) for k, v in taken.items() if k.endswith("self_attn.q_proj.weight"))
    assert rows == BUDGET * 8


def test_the_hub_interface_samples_and_scores_with_a_pruned_model(data, text, gated):
    settings = {"user_dir": str(USER_DIR), "data_name_or_path": str(text)}
    folder, name = str(gated.small.parent), gated.small.name
    for kind in (TransformerLanguageModel, EntmaxTransformerLanguageModel):
        hub = kind.from_pretrained(folder, name, **settings)
        assert isinstance(hub.models[0], EntmaxTransformerLanguageModel)
        prefix = lines_of(data, 1).strip()
        written = hub.sample(prefix, beam=2, max_len_b=15)
        assert written.startswith(prefix)
        scored = hub.score(prefix)
        assert scored["positional_scores"].shape == (3,)
        assert (scored["positional_scores"] < 0).all()
    tokens = hub.encode(prefix)
    with torch.no_grad():
        read = torch.cat([tokens.new_tensor([hub.tgt_dict.eos()]), tokens[:-1]])
        logits, _ = hub.models[0](read[None])
    expected = logits.log_softmax(-1)[0].gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(scored["positional_scores"], expected[: len(scored["tokens"])])


# -- YAML ----------------------------------------------------------------------------------

YAML = """
common: {{cpu: true, user_dir: {user_dir}, seed: 3, log_format: json}}
task: {{_name: language_modeling, data: {data}, tokens_per_sample: 128}}
dataset: {{max_tokens: 768, num_workers: 0, required_batch_size_multiple: 1}}
criterion: {{_name: cross_entropy}}
optimization: {{max_update: 4, lr: [0.003]}}
optimizer: {{_name: adam}}
lr_scheduler: {{_name: fixed}}
checkpoint: {{save_dir: {save_dir}, no_epoch_checkpoints: true}}
model:
  _name: entmax_transformer_lm_gpt
  decoder_layers: 2
  decoder_embed_dim: 32
  decoder_ffn_embed_dim: 32
  decoder_attention_heads: 4
  share_decoder_input_output_embed: true
  attn_mapping: [entmax, sparsemax]
  decoder_learned_pos: true
"""


def hydra(tmp_path, text, *overrides, check=True):
    settings = {"user_dir": USER_DIR, "data": text, "save_dir": tmp_path / "saved"}
    (tmp_path / "lm.yaml").write_text(YAML.format(**settings), encoding="utf-8")
    given = ["--config-dir", tmp_path, "--config-name", "lm", *overrides]
    return run("fairseq-hydra-train", *given, cwd=tmp_path, check=check)


def test_yaml_trains_what_the_same_options_train(text, tmp_path):
    hydra(tmp_path, text)
    path = tmp_path / "saved" / "checkpoint_last.pt"
    options = ["--attn-mapping=entmax,sparsemax", "--decoder-learned-pos", "--max-update=4"]
    log = train(text, tmp_path / "command", *options)
    ours, expected = weights(path), weights(tmp_path / "command" / "checkpoint_last.pt")
    assert ours.keys() == expected.keys()
    assert all(torch.equal(ours[name], value) for name, value in expected.items())
    assert ours["decoder.embed_positions.weight"].size(0) == 128 + 2  # --tokens-per-sample
    record = read_record(tmp_path / "saved" / "alpha.jsonl")[-1]
    assert list(record["alpha"]) == ["decoder-self"]
    valid = float(logged(log, "valid")[-1]["valid_loss"])
    assert evaluate(text, path, "--gen-subset=valid")[0] == pytest.approx(valid, abs=1e-3)


def test_options_that_do_not_fit_are_refused_in_one_sentence(text, tmp_path):
    adaptive = ["--criterion=adaptive_loss", "--ddp-backend=legacy_ddp"]
    given = options_of(text, tmp_path / "none", *adaptive)
    result = run("fairseq-train", *given, check=False)
    assert result.returncode == 2
    assert "fairseq-train: error: --criterion adaptive_loss needs a model with" in result.stderr
    assert not list((tmp_path / "none").glob("*.pt"))
    result = hydra(tmp_path, text, "+model.attn_maping=softmax", check=False)
    assert result.returncode == 2
    message = r"^fairseq-hydra-train: error: .*model.attn_maping is no option of this model"
    assert re.search(message, result.stderr, re.M)
