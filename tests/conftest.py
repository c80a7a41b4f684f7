"""Fixtures that tests in several files share."""

import importlib.util
import os
from types import SimpleNamespace

# Read by torch: Inductor must not reuse graphs of an earlier state of the package
os.environ.setdefault("TORCH_COMPILE_FORCE_DISABLE_CACHES", "1")

import pytest
import torch

from tests import preloaded
from tests.shared_folders import made_once

if importlib.util.find_spec("hydra"):
    preloaded.keep_what_is_parsed()

# Read when Triton is first imported: without a GPU, its kernels run in its interpreter
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_modifyitems(items):
    """Mark tests in Triton's interpreter as slow: it takes seconds where a GPU takes none."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        for item in items:
            if "triton" in item.nodeid:
                item.add_marker(pytest.mark.slow)


@pytest.fixture
def trainer(monkeypatch):
    """A stand-in for fairseq's trainer and its workers; ``updates`` is None without a trainer."""
    from fairseq.distributed import utils

    from fairseq_entmax import compat

    trainer = SimpleNamespace(updates=0, rank=0, workers=1)
    monkeypatch.setattr(compat, "trainer_num_updates", lambda: trainer.updates)
    monkeypatch.setattr(utils, "get_global_rank", lambda: trainer.rank)
    monkeypatch.setattr(utils, "get_global_world_size", lambda: trainer.workers)
    return trainer


@pytest.fixture
def stopped(monkeypatch, capsys):
    """A function that returns the exit status and the error with which a call ends a command.

    pytest has threads, and processes that other tests left behind, so a command would exit at once
    and end pytest too. ``tests/test_command_errors.py`` tests this in a separate process.
    """

    def of(call, *arguments, command="fairseq-train"):
        monkeypatch.setattr("sys.argv", [command])
        monkeypatch.setattr("threading.active_count", lambda: 1)
        monkeypatch.setattr("multiprocessing.active_children", list)
        with pytest.raises(SystemExit) as stop:
            call(*arguments)
        return stop.value.code, capsys.readouterr().err

    return of


@pytest.fixture
def refused(capsys):
    """A function that returns the only line that a call of our command prints as it refuses."""

    def of(call, *arguments):
        capsys.readouterr()
        assert call(*arguments) == 1
        printed, error = capsys.readouterr()
        assert (printed, error.count("\n")) == ("", 1), error
        return error

    return of


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    """A binarised slice of the corpus, its plain text, and its BPE model."""
    from tests import commands  # imported here, because it needs fairseq

    return made_once(tmp_path_factory, "data", commands.prepare)


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """An α-entmax model after two epochs; ``log.txt`` has what the training printed."""
    from tests import commands

    def make(folder):
        boards = f"--tensorboard-logdir={folder}/boards"
        result = commands.train(data, folder, "--max-epoch=2", boards)
        commands.keep_log(result, folder)

    return made_once(tmp_path_factory, "trained", make)


@pytest.fixture(scope="session")
def pruned(data, trained, tmp_path_factory):
    """``gated``: the model tuned to :data:`tests.commands.BUDGET` heads; ``small.pt``: pruned."""
    from tests import commands

    def make(folder):
        start = f"--finetune-from-model={trained / 'checkpoint_best.pt'}"
        budget = [f"--target-heads={commands.BUDGET}", "--max-update=24"]
        more = [start, *budget, "--validate-interval-updates=6"]
        result = commands.train(data, folder / "gated", *commands.GATED, *more)
        commands.keep_log(result, folder / "gated")
        gated = folder / "gated" / "checkpoint_best.pt"
        report = commands.run("fairseq-entmax", "prune", gated, "--output", folder / "small.pt")
        (folder / "report.txt").write_text(report.stdout, encoding="utf-8")

    return made_once(tmp_path_factory, "pruned", make)


@pytest.fixture(scope="session")
def text(data, tmp_path_factory):
    """The English side as data for language models, with the joint dictionary."""
    from tests import commands

    def make(folder):
        prefixes = [f"--{split}pref={data}/{split}.bpe.en" for split in commands.SIZES]
        dictionary = f"--srcdict={data}/bin/dict.en.txt"
        commands.run(
            "fairseq-preprocess", "--only-source", *prefixes, dictionary, f"--destdir={folder}"
        )

    return made_once(tmp_path_factory, "text", make)
