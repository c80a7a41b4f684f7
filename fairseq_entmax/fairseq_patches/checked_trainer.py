"""Checks model and criterion together in ``Trainer.__init__``, and remembers the trainer.

Without it: only the first batch shows that a criterion needs gates and the model has none, or
``--ddp-backend fully_sharded`` hides them; nothing notices that attention will still be rising at
the end; in validation, the number of updates is unknown; if several processes resume from a
checkpoint, all but the first end in a traceback; and a training ends early, and saves no best
checkpoint, if an earlier one in the same process had a better score.
Remove when: fairseq checks a model and a criterion together, tells a model its updates, and forgets
the best score of an earlier training.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_entmax import command_errors, compat
from fairseq_entmax.fairseq_patches.replacing import is_ours
from fairseq_entmax.mappings.rise import rises_of

logger = logging.getLogger(__name__)


def check_and_follow(
    init: Callable[..., None],
    trainer: Trainer,
    cfg: Any,
    task: Any,
    model: Any,
    criterion: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    """``Trainer.__init__``, with its arguments."""
    with command_errors.stopping_command():
        if hasattr(criterion, "check_model"):
            criterion.check_model(model)
        if hasattr(model, "prepare_criterion"):
            model.prepare_criterion(criterion, task, cfg.checkpoint.save_dir)
    longest = max((rise.length for rise in rises_of(model)), default=0)
    if 0 < cfg.optimization.max_update < longest:
        logger.warning(
            "attention or the output becomes sparse over %d updates, but training ends before, at "
            "--max-update %d: give fewer warm-up updates, or train on",
            *(longest, cfg.optimization.max_update),
        )
    # Otherwise the others get the checkpoint by a load that torch 2.6 and later refuse
    cfg.checkpoint.load_checkpoint_on_all_dp_ranks = True
    # Otherwise it has the best score of an earlier training in its process (fairseq-hydra-train -m)
    command = sys.modules.get("fairseq_cli.train")
    for function in (checkpoint_utils.save_checkpoint, getattr(command, "should_stop_early", None)):
        getattr(function, "__dict__", {}).pop("best", None)
    init(trainer, cfg, task, model, criterion, *args, **kwargs)
    if is_ours(model):
        compat.follow_trainer(trainer)
