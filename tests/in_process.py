"""fairseq's training and generation in this process, for tests with many short ones.

The functions that the installed commands call, with the same options: what a command takes to
start, and the process for each, is saved. A refusal is raised instead of ending a command.
"""

from __future__ import annotations

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

USER = f"--user-dir={USER_DIR}"


@dataclass
class Training:
    """What a training left.

    Attributes:
        losses: of each update, per sentence or token, in nats.
        model: as it stands after the last update.
        trainer: of fairseq's.
        before: the parameters before the first update, by name.
        path: of the checkpoint written last.
    """

    losses: list[float] = field(default_factory=list)
    model: Any = None
    trainer: Any = None
    before: dict[str, Tensor] = field(default_factory=dict)
    path: Path = Path()

    def moved(self) -> dict[str, Tensor]:
        """The parameters that updates have changed, as they are now."""
        return {
            name: value
            for name, value in self.model.named_parameters()
            if not torch.equal(value.detach().float(), self.before[name].float())
        }


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """Undo what fairseq's commands leave in a process: their log level, records, best losses."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    loggers = [logging.getLogger(name) for name in ("fairseq_cli.train", "fairseq_cli.generate")]
    levels = [logger.level for logger in loggers]
    numbers = torch.random.get_rng_state()
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        for logger, before in zip(loggers, levels, strict=True):
            logger.setLevel(before)
        torch.random.set_rng_state(numbers)
        metrics.reset()
        for name in ("best",):
            if hasattr(checkpoint_utils.save_checkpoint, name):
                delattr(checkpoint_utils.save_checkpoint, name)


def train(folder: Path, save_dir: Path, given: Sequence[str]) -> Training:
    """Train as ``fairseq-train`` does.

    Args:
        folder: of the data, as ``fairseq-preprocess`` wrote it.
        save_dir: for checkpoints.
        given: options.
    """
    from fairseq_cli import train as command

    done = Training(path=save_dir / "checkpoint_last.pt")
    step = Trainer.train_step

    def recording(trainer: Trainer, samples: Any, raise_oom: bool = False) -> Any:
        if done.trainer is None:
            done.trainer, done.model = trainer, trainer.get_model()
            named = done.model.named_parameters()
            done.before = {name: value.detach().clone() for name, value in named}
        output = step(trainer, samples, raise_oom)
        if output is not None:
            done.losses.append(float(output["loss"]))
        return output

    with _as_it_was(), mock.patch.object(Trainer, "train_step", recording):
        parser = options.get_training_parser()
        words = [str(folder), USER, f"--save-dir={save_dir}", "--cpu", *given]
        # fairseq looks for the user's folder among the words of the command
        with mock.patch("sys.argv", ["pytest", *words]):
            args = options.parse_args_and_arch(parser, words)
            command.main(convert_namespace_to_omegaconf(args))
    return done


def generate(folder: Path, checkpoint: Path, given: Sequence[str]) -> str:
    """Translate as ``fairseq-generate`` does; what it prints."""
    from fairseq_cli import generate as command

    printed = io.StringIO()
    with _as_it_was(), contextlib.redirect_stdout(printed):
        parser = options.get_generation_parser()
        words = [str(folder), USER, f"--path={checkpoint}", "--cpu", *given]
        with mock.patch("sys.argv", ["pytest", *words]):
            args = options.parse_args_and_arch(parser, words)
            command.main(convert_namespace_to_omegaconf(args))
    return printed.getvalue()
