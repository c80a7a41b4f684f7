"""Ends a training at once if its checkpoint has all the updates.

Without it: a training that was killed after its last checkpoint makes one more update when resumed.
Remove when: fairseq checks ``--max-update`` before an epoch.
"""

import logging
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

logger = logging.getLogger(__name__)


def end_when_done(train: Callable[..., Any], cfg: Any, trainer: Trainer, *args: Any) -> Any:
    """``train`` for an epoch, but training ends at once if no update is left."""
    updates = trainer.get_num_updates()
    if 0 < cfg.optimization.max_update <= updates:
        logger.info("the checkpoint already has %d updates: nothing is left to train", updates)
        return [None], True
    return train(cfg, trainer, *args)
