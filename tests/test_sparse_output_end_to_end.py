"""A sparse output layer with fairseq's own commands, on a slice of the shipped corpus."""

import math
import re

import pytest
import torch

from fairseq_entmax.models import EntmaxTransformerModel
from fairseq_entmax.models.checkpoint_model import read_model
from tests.commands import SIZES, USER_DIR, generate, hub, hypotheses, logged, run, train

LOSS = ["--criterion=entmax_loss", "--loss-alpha=1.5", "--label-smoothing=0"]
# An output with many zeros
SHARP = "--model-overrides={'output_alpha': 2.0}"
EXACT = re.compile(r"exact search: (\d+) of (\d+) sentences \(\d+\.\d%\)")


@pytest.fixture(scope="module")
def sparse(data, tmp_path_factory):
    """A model after two epochs with the entmax loss, and the output of its training."""
    folder = tmp_path_factory.mktemp("sparse-output")
    return folder / "checkpoint_last.pt", train(data, folder, *LOSS, "--max-epoch=2")


def test_training_lowers_the_loss_and_logs_the_support_but_no_perplexity(sparse):
    epochs = logged(sparse[1], "valid")
    assert float(epochs[-1]["valid_loss"]) < float(epochs[0]["valid_loss"])
    for numbers in epochs:
        assert 1 <= float(numbers["valid_support"]) <= 504
        assert 0 <= float(numbers["valid_accuracy"]) <= float(numbers["valid_in_support"]) <= 100
        assert not {"valid_ppl", "valid_nll_loss"} & set(numbers)


@pytest.mark.parametrize(
    "options",
    [
        ["--nbest=3"],
        ["--beam=40", "--nbest=40", "--print-alignment", "--max-len-b=4"],
        ["--task=entmax_summarization", "--length-penalty=wu", "--coverage-penalty=2"],
    ],
    ids=" ".join,
)
def test_generate_succeeds_and_reports_exact_searches(data, sparse, options):
    result = generate(data, sparse[0], SHARP, "--max-len-b=12", *options)
    ((_, sentences),) = EXACT.findall(result.stdout + result.stderr)
    assert int(sentences) == len(hypotheses(result.stdout)) == SIZES["test"]
    lines = [line.split("\t") for line in result.stdout.splitlines() if line[:2] == "H-"]
    assert all(math.isfinite(float(line[1])) for line in lines)


def test_interactive_and_python_take_the_sparse_output_from_the_checkpoint(data, sparse):
    lines = (data / "test.bpe.es").read_text(encoding="utf-8").splitlines(keepends=True)[:3]
    options = [f"--user-dir={USER_DIR}", f"--path={sparse[0]}", "--beam=3", "--max-len-b=8"]
    result = run("fairseq-interactive", data / "bin", SHARP, *options, stdin="".join(lines))
    assert [int(total) for _, total in EXACT.findall(result.stdout + result.stderr)] == [3]
    interface = hub(EntmaxTransformerModel, sparse[0], data / "bin")
    (best, *_) = interface.generate(interface.binarize(lines[0]), beam=3, max_len_b=2)
    assert best.keys() >= {"exact_search", "unfinished"}
    (model,) = interface.models
    with torch.no_grad():
        words = torch.tensor([[5, 6, 2]])
        probs = model.get_normalized_probs(model(words, torch.tensor([3]), words), False)
    assert model.output_alpha == 1.5
    assert (probs == 0).any()


def test_a_pruned_model_keeps_its_output_alpha_and_hypotheses(data, sparse, tmp_path):
    gates = ["--criterion=entmax_loss_with_head_l0", "--head-gates=encoder-self,decoder-self,cross"]
    options = [*gates, "--target-heads=10", "--max-update=24", f"--finetune-from-model={sparse[0]}"]
    train(data, tmp_path, *LOSS[1:], *options)
    gated, small = tmp_path / "checkpoint_last.pt", tmp_path / "small.pt"
    run("fairseq-entmax", "prune", gated, "--output", small)
    outputs = [hypotheses(generate(data, path).stdout) for path in (gated, small)]
    assert outputs[0] == outputs[1]
    assert read_model(str(small)).options.output_alpha == 1.5
