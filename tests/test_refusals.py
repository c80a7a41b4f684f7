"""Refusals of fairseq's commands end in a one-line error, even with several processes."""

import os

from tests import commands


def sentence_of(result):
    """The last line of a command's output, after checking that it is the only error."""
    assert result.returncode == 2
    text = result.stdout + result.stderr
    assert "Traceback" not in text
    assert "EOFError" not in text
    assert text.count("error:") == 1
    return text.strip().splitlines()[-1]


def test_validation_without_a_task_is_refused_in_one_line(data, tmp_path):
    (tmp_path / "model.pt").touch()
    options = [f"--user-dir={commands.USER_DIR}", f"--path={tmp_path / 'model.pt'}"]
    result = commands.run("fairseq-validate", data / "bin", *options, check=False)
    assert sentence_of(result) == (
        "fairseq-validate: error: give the --task of the training, such as --task translation"
    )


# Two processes that fairseq starts, as it does for two GPUs
TWO_GPUS = """
import torch
torch.cuda.device_count = lambda: 2
import fairseq_entmax.models
"""


def test_only_one_of_the_processes_that_fairseq_starts_prints_the_error(data, tmp_path):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "__init__.py").write_text(TWO_GPUS)
    result = commands.train(
        data,
        tmp_path / "run",
        f"--user-dir={tmp_path / 'own'}",
        "--criterion=label_smoothed_cross_entropy_with_head_l0",
        *("--distributed-world-size=2", "--distributed-backend=gloo", "--ddp-backend=legacy_ddp"),
        *("--max-update=1", f"--distributed-port={20000 + os.getpid() % 20000}"),
        arch="transformer",
        check=False,
    )
    assert "needs a model with head gates: add --head-gates" in sentence_of(result)
