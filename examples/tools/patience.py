"""fairseq-train, whose --patience goes on counting where a training was stopped.

patience.py TRAIN.LOG OPTION...     # options of fairseq-train

fairseq counts validations without a lower loss in memory alone, so that a training which was stopped
and goes on would get patience anew. The log has them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training_logs import read_course


def go_on_counting(should_stop_early: Callable[..., bool], log: Path, updates: int) -> None:
    """Set fairseq's counter, which it keeps as attributes of a function.

    `updates` are those at which the training goes on; what the log has behind them was lost.
    """
    try:
        epochs = read_course(log).epochs
    except (OSError, ValueError):
        return  # there was no validation
    losses = [epoch.valid_loss for epoch in epochs if epoch.updates <= updates]
    if losses:
        since = len(losses) - 1 - losses.index(min(losses))
        vars(should_stop_early).update(best=min(losses), num_runs=since)


def main() -> None:
    # Before anything of fairseq's, as it says how lines of the log look
    from fairseq_cli import train

    log, sys.argv[1:] = Path(sys.argv[1]), sys.argv[2:]
    load = train.Trainer.load_checkpoint

    def load_checkpoint(trainer: Any, *arguments: Any, **named: Any) -> Any:
        loaded = load(trainer, *arguments, **named)
        go_on_counting(train.should_stop_early, log, trainer.get_num_updates())
        return loaded

    train.Trainer.load_checkpoint = load_checkpoint
    train.cli_main()


if __name__ == "__main__":
    main()
