"""A training whose checkpoint has all its updates.

Without it: a training that was killed behind its last checkpoint makes one more update.
Remove when: fairseq looks at ``--max-update`` before an epoch.
"""

import logging
from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from fairseq_entmax.fairseq_patches.replacing import is_ours

logger = logging.getLogger(__name__)


def end_when_done(train: Callable[..., Any], cfg: Any, trainer: Trainer, *args: Any) -> Any:
    """``train`` of an epoch, which is the last where no update is left."""
    updates = trainer.get_num_updates()
    if is_ours(trainer.get_model()) and 0 < cfg.optimization.max_update <= updates:
        logger.info("the checkpoint has made %d updates: nothing is left", updates)
        return [None], True
    return train(cfg, trainer, *args)
