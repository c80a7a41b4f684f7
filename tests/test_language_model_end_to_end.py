"""Language models with fairseq's own commands, on the English side of a slice of the corpus."""

import re
from types import SimpleNamespace

import pytest
import torch
from fairseq.models.transformer_lm import TransformerLanguageModel

from fairseq_entmax.head_records import read_record
from fairseq_entmax.models import EntmaxTransformerLanguageModel
from tests.commands import USER_DIR, hub, hypotheses, logged, loss_in_bits, run, weights

MODEL = [
    *("--decoder-layers=2", "--decoder-embed-dim=32", "--decoder-ffn-embed-dim=32"),
    *("--decoder-attention-heads=4", "--share-decoder-input-output-embed"),
]
TRAINING = [
    *("--task=language_modeling", "--optimizer=adam", "--lr=0.003", "--tokens-per-sample=128"),
    *("--max-tokens=768", "--required-batch-size-multiple=1", "--num-workers=0", "--seed=3"),
    *("--no-epoch-checkpoints", "--log-format=json", "--log-interval=1"),
]
BUDGET = 3
GATED = [
    *("--criterion=cross_entropy_with_head_l0", "--head-gates=decoder-self"),
    *(f"--target-heads={BUDGET}", "--decide-heads-at=12", "--max-update=16"),
]


def train(text, save_dir, *options):
    own = [f"--user-dir={USER_DIR}", "--arch=entmax_transformer_lm_gpt", f"--save-dir={save_dir}"]
    return run("fairseq-train", text, *own, *MODEL, *TRAINING, *options)


def evaluate(text, path, *options):
    """The loss per token in bits."""
    given = [f"--path={path}", "--task=language_modeling", "--tokens-per-sample=128", *options]
    return loss_in_bits(run("fairseq-eval-lm", text, f"--user-dir={USER_DIR}", *given))


@pytest.fixture(scope="module")
def gated(text, tmp_path_factory):
    """A model trained to a budget of heads, and the pruned model."""
    folder = tmp_path_factory.mktemp("gated")
    log = train(text, folder, *GATED)
    path, small = folder / "checkpoint_last.pt", folder / "small.pt"
    report = run("fairseq-entmax", "prune", path, "--output", small)
    return SimpleNamespace(log=log, path=path, small=small, report=report.stdout)


def test_training_meets_the_budget_and_pruning_keeps_the_loss(text, gated):
    assert float(logged(gated.log, "valid")[-1]["valid_heads_open"]) == BUDGET
    assert re.search(rf"^heads decoder-self +8 +{BUDGET}  ", gated.report, re.MULTILINE)
    for options in ([], ["--sample-break-mode=eos"]):
        before = evaluate(text, gated.path, *options)
        after = evaluate(text, gated.small, *options)
        assert after == pytest.approx(before, abs=1e-4)
        assert 0 < after < 9
    words = [text, f"--user-dir={USER_DIR}", f"--path={gated.small}", "--task=language_modeling"]
    result = run("fairseq-interactive", *words, "--beam=3", "--max-len-b=20", stdin="<prefix>\n")
    assert len(hypotheses(result.stdout)) == 1


def test_the_hub_interface_samples_and_scores_with_a_pruned_model(data, text, gated):
    for kind in (TransformerLanguageModel, EntmaxTransformerLanguageModel):
        interface = hub(kind, gated.small, text)
        assert isinstance(interface.models[0], EntmaxTransformerLanguageModel)
        prefix = " ".join((data / "test.bpe.en").read_text(encoding="utf-8").split()[:3])
        written = interface.sample(prefix, beam=2, max_len_b=15)
        assert written.startswith(prefix)
        scored = interface.score(prefix)
        assert scored["positional_scores"].shape == (3,)
        assert (scored["positional_scores"] < 0).all()
    tokens = interface.encode(prefix)
    with torch.no_grad():
        read = torch.cat([tokens.new_tensor([interface.tgt_dict.eos()]), tokens[:-1]])
        logits, _ = interface.models[0](read[None])
    expected = logits.log_softmax(-1)[0].gather(1, tokens[:, None])[:, 0]
    torch.testing.assert_close(scored["positional_scores"], expected[: len(scored["tokens"])])


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


def test_yaml_and_command_line_options_train_the_same_model(text, tmp_path):
    settings = {"user_dir": USER_DIR, "data": text, "save_dir": tmp_path / "saved"}
    (tmp_path / "lm.yaml").write_text(YAML.format(**settings), encoding="utf-8")
    run("fairseq-hydra-train", "--config-dir", tmp_path, "--config-name", "lm", cwd=tmp_path)
    path = tmp_path / "saved" / "checkpoint_last.pt"
    options = ["--attn-mapping=entmax,sparsemax", "--decoder-learned-pos", "--max-update=4"]
    train(text, tmp_path / "command", *options)
    ours, expected = weights(path), weights(tmp_path / "command" / "checkpoint_last.pt")
    torch.testing.assert_close(ours, expected, atol=0, rtol=0)
    assert ours["decoder.embed_positions.weight"].size(0) == 128 + 2  # --tokens-per-sample
    record = read_record(tmp_path / "saved" / "alpha.jsonl")[-1]
    assert list(record["alpha"]) == ["decoder-self"]
