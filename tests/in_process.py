"""fairseq's training and generation in this process, for tests with many short runs.

These functions call what the installed commands call, with the same options, and save the start of
a command. A refusal is raised as an exception, where a command would print it and exit.
"""

import contextlib
import io
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from fairseq import checkpoint_utils, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from torch import Tensor

from tests.commands import USER_DIR

COMMANDS = ("fairseq_cli.train", "fairseq_cli.generate")


@dataclass
class Training:
    """The results of a training."""

    path: Path  # of the last checkpoint
    losses: list[float] = field(default_factory=list)  # of each update, in bits
    before: float = 0.0  # the evaluation loss of the first batch, before and after all updates
    after: float = 0.0
    first: Any = None  # the first batch
    start: dict[str, Tensor] = field(default_factory=dict)  # parameters before the first update
    trainer: Any = None

    @property
    def model(self) -> Any:
        """The model after the last update."""
        return self.trainer.get_model()

    def still(self) -> set[str]:
        """The names of the parameters that no update has changed."""
        named = self.model.named_parameters()
        return {name for name, value in named if torch.equal(value.detach(), self.start[name])}


def train(folder: Path, save_dir: Path, given: Sequence[str]) -> Training:
    """Train like ``fairseq-train`` on the data in a folder."""
    from fairseq_cli import train as command

    done = Training(save_dir / "checkpoint_last.pt")
    step = Trainer.train_step

    def watched(trainer: Trainer, samples: Any, raise_oom: bool = False) -> Any:
        if done.trainer is None:
            done.trainer, done.first = trainer, samples[0]
            named = done.model.named_parameters()
            done.start = {name: value.detach().clone() for name, value in named}
            done.before = float(trainer.valid_step(done.first)["loss"])
        output = step(trainer, samples, raise_oom)
        if output is not None:
            done.losses.append(float(output["loss"]))
        return output

    with mock.patch.object(Trainer, "train_step", watched):
        _run(command, options.get_training_parser(), [folder, f"--save-dir={save_dir}", *given])
    with _as_it_was():
        done.after = float(done.trainer.valid_step(done.first)["loss"])
    return done


def generate(folder: Path, checkpoint: Any, given: Sequence[str]) -> str:
    """Translate like ``fairseq-generate`` and return what it prints."""
    from fairseq_cli import generate as command

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        _run(command, options.get_generation_parser(), [folder, f"--path={checkpoint}", *given])
    return printed.getvalue()


def _run(command: Any, parser: Any, given: Sequence[Any]) -> None:
    words = [*map(str, given), f"--user-dir={USER_DIR}", "--cpu"]
    # fairseq reads the user directory and settings of its trainer from sys.argv
    with _as_it_was(), mock.patch("sys.argv", ["pytest", *words]):
        args = options.parse_args_and_arch(parser, words)
        command.main(convert_namespace_to_omegaconf(args))


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Undo what fairseq's commands leave behind: handlers, random state, meters, best losses."""
    loggers = [logging.getLogger(name) for name in ("", *COMMANDS)]
    before = [(logger, list(logger.handlers), logger.level) for logger in loggers]
    numbers = torch.random.get_rng_state()
    try:
        yield
    finally:
        for logger, handlers, level in before:
            logger.handlers[:] = handlers
            logger.setLevel(level)
        torch.random.set_rng_state(numbers)
        metrics.reset()
        vars(checkpoint_utils.save_checkpoint).pop("best", None)
