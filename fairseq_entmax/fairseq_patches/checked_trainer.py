"""``Trainer.__init__`` with a look at model and criterion together, which notes the trainer.

Without it: a criterion meets a model without gates only in the first batch, or gates that
``--ddp-backend fully_sharded`` hides; and in validation nothing says after how many updates.
Remove when: fairseq checks a model and a criterion together, and tells a model its updates.
"""

from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from fairseq_entmax import compat
from fairseq_entmax.fairseq_patches.replacing import is_ours


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
    """``Trainer.__init__``, whose arguments these are."""
    with compat.stopping_command():
        if hasattr(criterion, "check_model"):
            criterion.check_model(model)
        if hasattr(model, "check_criterion"):
            model.check_criterion(criterion)
        if hasattr(model, "take_teacher"):
            model.take_teacher(criterion, task)
    init(trainer, cfg, task, model, criterion, *args, **kwargs)
    if is_ours(model):
        compat.follow_trainer(trainer)
