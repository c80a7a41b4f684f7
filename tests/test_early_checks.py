"""What fairseq's commands are told before they load anything."""

import os
from argparse import Namespace
from contextlib import nullcontext

import pytest

from fairseq_entmax import early_checks
from tests import commands

GIVEN = {"data": os.path.dirname(__file__), "path": __file__, "task": "translation"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": "/absent"}, "there is no folder /absent with data: give the folder that"),
        ({"path": None}, "give --path CHECKPOINT"),
        ({"path": "/absent.pt"}, "--path got /absent.pt: there is no such checkpoint"),
        ({"input": "/absent.txt"}, "--input got /absent.txt: there is no such text"),
        ({"data": "s3://bucket/data"}, None),
        ({"path": "/absent.pt", "checkpoint_suffix": "-rank-0"}, None),
        ({"input": "-"}, None),
    ],
)
def test_what_is_not_there_is_named(changes, message):
    refused = nullcontext() if message is None else pytest.raises(ValueError, match=message)
    with refused:
        early_checks.check("fairseq-generate", Namespace(**{**GIVEN, **changes}))


def sentence_of(result):
    """What a command ended with; it says nothing else on what went wrong."""
    assert result.returncode == 2
    text = result.stdout + result.stderr
    assert "Traceback" not in text
    assert "EOFError" not in text
    assert text.count("error:") == 1
    return text.strip().splitlines()[-1]


def test_a_criterion_that_a_stock_model_does_not_fit_is_one_sentence(data, tmp_path):
    options = ["--criterion=entmax_loss", "--num-workers=2", "--max-update=1"]
    result = commands.train(data, tmp_path, *options, arch="transformer", check=False)
    assert "needs a model of this package that writes words" in sentence_of(result)
    assert not list(tmp_path.iterdir())


def test_a_validation_without_its_task_is_one_sentence(data, tmp_path):
    (tmp_path / "model.pt").touch()
    options = [f"--user-dir={commands.USER_DIR}", f"--path={tmp_path / 'model.pt'}"]
    result = commands.run("fairseq-validate", data / "bin", *options, check=False)
    assert sentence_of(result) == (
        "fairseq-validate: error: give --task, that of the training, such as --task translation"
    )


# Two processes that fairseq starts itself, as it does for two GPUs, and no check of the options
TWO_GPUS = """
import torch
torch.cuda.device_count = lambda: 2
from fairseq_entmax import early_checks
from fairseq_entmax.criterions.head_l0 import HeadL0Options
early_checks.check = lambda *_: None
import fairseq_entmax.models
"""


@pytest.mark.slow
def test_of_processes_that_fairseq_starts_one_says_the_sentence(data, tmp_path):
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
