"""A sparse output layer through fairseq's own commands, on a slice of the shipped corpus."""

import json
import math
import os
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest
import torch
from fairseq.models.transformer import TransformerModel

from fairseq_entmax.models.saved import read_model
from tests.commands import (
    COMMANDS,
    ROOT,
    SMALL_MODEL,
    TRAINING,
    USER_DIR,
    generate,
    hypotheses,
    logged,
    run,
    train,
)

pytestmark = pytest.mark.slow

LOSS = ["--criterion=entmax_loss", "--loss-alpha=1.5", "--label-smoothing=0"]
GATED = [
    "--criterion=entmax_loss_with_head_l0",
    "--head-gates=encoder-self,decoder-self,cross",
    "--target-heads=10",
    "--max-update=24",
]


def weights(path):
    return torch.load(path)["model"]


@pytest.fixture(scope="module")
def trained(data, tmp_path_factory):
    """A model after two epochs of the loss, a gated one from there, and that one pruned."""
    folder = tmp_path_factory.mktemp("sparse-output")
    log = train(data, folder / "full", *LOSS, "--max-epoch=2")
    full = folder / "full" / "checkpoint_last.pt"
    start = f"--finetune-from-model={full}"
    train(data, folder / "gated", *LOSS, *GATED, start)
    gated, small = folder / "gated" / "checkpoint_last.pt", folder / "small.pt"
    run("fairseq-entmax", "prune", gated, "--output", small)
    return SimpleNamespace(log=log, full=full, gated=gated, small=small)


def test_training_lowers_the_loss_and_reports_supports_and_no_perplexity(trained):
    epochs = logged(trained.log, "valid")
    assert float(epochs[-1]["valid_loss"]) < float(epochs[0]["valid_loss"])
    for numbers in epochs:
        assert 1 <= float(numbers["valid_support"]) <= 504
        assert 0 <= float(numbers["valid_accuracy"]) <= float(numbers["valid_in_support"]) <= 100
        assert not {"valid_ppl", "valid_nll_loss"} & set(numbers)


def test_generation_is_sparse_from_the_checkpoint_alone(data, trained):
    assert read_model(str(trained.full)).options.output_alpha == 1.5
    output = generate(data, trained.full, "--beam=4", "--nbest=4").stdout
    lines = [line.split("\t") for line in output.splitlines() if line.startswith("H-")]
    assert len({line[0] for line in lines}) == 24
    assert all(math.isfinite(float(line[1])) for line in lines)
    model = TransformerModel.from_pretrained(
        str(trained.full.parent), "checkpoint_last.pt", str(data / "bin")
    )
    (inner,) = model.models
    with torch.no_grad():
        words = torch.tensor([[5, 6, 2]])
        probs = inner.get_normalized_probs(inner(words, torch.tensor([3]), words), False)
    assert inner.output_alpha == 1.5
    assert (probs == 0).any()


def test_the_pruned_model_generates_what_the_gated_one_does(data, trained):
    outputs = [generate(data, path).stdout for path in (trained.gated, trained.small)]
    assert hypotheses(outputs[1]) == hypotheses(outputs[0])
    assert read_model(str(trained.small)).options.output_alpha == 1.5


def test_a_checkpoint_can_be_looked_at_through_another_output(data, trained, tmp_path):
    train(data, tmp_path / "softmax", "--max-update=2")
    dense = tmp_path / "softmax" / "checkpoint_last.pt"
    for checkpoint, alphas in ((trained.full, (1.0, 2.0)), (dense, (2.0,))):
        own = generate(data, checkpoint).stdout
        for alpha in alphas:
            other = generate(
                data, checkpoint, "--model-overrides", f"{{'output_alpha': {alpha}}}"
            ).stdout
            assert len(hypotheses(other)) == 24
            assert other != own


def test_validation_repeats_what_training_has_said(data, trained):
    result = run(
        "fairseq-validate",
        data / "bin",
        f"--user-dir={USER_DIR}",
        f"--path={trained.full}",
        "--task=translation",
        "--valid-subset=valid",
        "--max-tokens=1500",
        "--required-batch-size-multiple=1",
        "--log-format=json",
    )
    last = logged(trained.log, "valid")[-1]
    (numbers,) = [
        json.loads(line.split(" | ")[-1])
        for line in (result.stdout + result.stderr).splitlines()
        if "| valid | " in line and line.split(" | ")[-1].startswith("{")
    ]
    for name in ("loss", "accuracy", "support", "in_support"):
        said = numbers.get(f"valid_{name}", numbers.get(name))
        assert float(said) == pytest.approx(float(last[f"valid_{name}"]), abs=2e-3)


def test_a_training_killed_and_resumed_ends_like_one_that_was_not(data, tmp_path):
    options = [*LOSS, "--save-interval-updates=4", "--keep-interval-updates=9"]
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    train(data, straight, *options, "--max-update=16")
    command = [
        *(COMMANDS / "fairseq-train", data / "bin", f"--user-dir={USER_DIR}"),
        *("--arch=entmax_transformer", f"--save-dir={killed}", *SMALL_MODEL, *TRAINING),
        *(*options, "--max-update=2000", "--cpu"),
    ]
    process = subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 300
    while not list(killed.glob("checkpoint_*_8.pt")):
        assert process.poll() is None, "the training ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (middle,) = killed.glob("checkpoint_*_8.pt")
    middle.replace(killed / "checkpoint_last.pt")
    train(data, killed, *options, "--max-update=16")
    ends = [weights(folder / "checkpoint_last.pt") for folder in (straight, killed)]
    for name, value in ends[0].items():
        torch.testing.assert_close(ends[1][name], value, msg=name)


def test_hydra_takes_the_alpha_of_the_output_from_the_criterion(data, tmp_path):
    result = subprocess.run(
        [
            COMMANDS / "fairseq-hydra-train",
            "--config-dir",
            ROOT / "examples" / "bible_es_en" / "configs",
            "--config-name",
            "entmax",
            f"common.user_dir={USER_DIR}",
            "common.cpu=true",
            f"task.data={data / 'bin'}",
            f"checkpoint.save_dir={tmp_path / 'hydra'}",
            "optimization.max_epoch=1",
            "criterion._name=entmax_loss",
            "+criterion.loss_alpha=1.7",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    checkpoint = tmp_path / "hydra" / "checkpoint_last.pt"
    assert read_model(str(checkpoint)).options.output_alpha == 1.7
    assert len(hypotheses(generate(data, checkpoint).stdout)) == 24


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--criterion=entmax_loss", "--loss-alpha=3"], "--loss-alpha must be from 1"),
        (
            ["--criterion=entmax_loss", "--output-alpha=1.2"],
            "--output-alpha 1.2 is not what --loss-alpha 1.5 trains the output for",
        ),
        (
            ["--criterion=entmax_loss", "--best-checkpoint-metric=ppl"],
            "--best-checkpoint-metric ppl is infinite with --loss-alpha 1.5",
        ),
        (
            ["--output-alpha=1.2"],
            "--criterion label_smoothed_cross_entropy is infinite where --output-alpha 1.2",
        ),
        (
            ["--criterion=entmax_loss", "--adaptive-softmax-cutoff=100"],
            "--criterion entmax_loss: --adaptive-softmax-cutoff has no one score for each word",
        ),
    ],
)
def test_a_wrong_option_stops_training_with_one_sentence(data, tmp_path, options, message):
    result = train(data, tmp_path / "new", *options, check=False)
    assert result.returncode != 0
    said = result.stdout + result.stderr
    assert message in said
    assert "Traceback" not in said
    assert not (tmp_path / "new").exists()
