"""fairseq's own trainer on the tiny task, without its commands."""

from typing import Any

from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from tests.support import batch, tiny_task


def make_trainer(model: Any, *arguments: str) -> Trainer:
    """fairseq's trainer as its command makes it, with the criterion of the options."""
    parser = options.get_training_parser()
    given = ["data", "--cpu", "--optimizer=adam", "--lr=0.01", "--max-tokens=99", *arguments]
    args = options.parse_args_and_arch(parser, ["--arch=transformer", "--task=translation", *given])
    cfg = convert_namespace_to_omegaconf(args)
    return Trainer(cfg, tiny_task(), model, tiny_task().build_criterion(cfg.criterion))


def train(trainer: Trainer, updates: int = 1) -> None:
    """Make updates, each with the same batch."""
    trainer.get_model().train()
    for _ in range(updates):
        trainer.train_step([batch([9, 7, 4], [6, 8, 3])])


def save(trainer: Trainer, path: Any) -> str:
    """Write a checkpoint as in the middle of the first epoch, and return its path."""
    trainer.consolidate_optimizer()
    iterator = {"epoch": 1, "version": 2, "iterations_in_epoch": 1}
    trainer.save_checkpoint(str(path), {"train_iterator": iterator})
    return str(path)
