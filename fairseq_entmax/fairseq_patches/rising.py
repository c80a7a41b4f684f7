"""Rising mappings and outputs (``--alpha-warmup-updates``), and heads that are not yet decided.

Without it: validation and the checkpoint have the share of the previous update; the best checkpoints
may be denser, or have more heads, than asked for; ``--patience`` and a plateau count from the start.
Remove when: fairseq tells a model its updates also after each, and lets it say that it is not done.
"""

import copy
import logging
from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_entmax import compat
from fairseq_entmax.mappings.rise import rises_of

logger = logging.getLogger(__name__)


def tell_updates(step: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.train_step``, after which the rises are told the number of updates."""
    output = step(trainer, *args, **kwargs)
    averages = [trainer.ema.get_model()] if trainer.cfg.ema.store_ema else []
    for model in [trainer.get_model(), *averages]:
        for rise in rises_of(model):
            rise.set_num_updates(trainer.get_num_updates())
    return output


def forget_best(
    save: Callable[..., Any], cfg: Any, trainer: Trainer, *args: Any, **kwargs: Any
) -> Any:
    """``save_checkpoint``, but no best score or checkpoint is kept until :func:`_is_settled`."""
    if _is_settled(trainer):
        return save(cfg, trainer, *args, **kwargs)
    best, cfg = vars(checkpoint_utils.save_checkpoint), copy.deepcopy(cfg)
    cfg.keep_best_checkpoints = 0  # in a copy, as the checkpoint has the settings, too
    saved = save(cfg, trainer, *args, **kwargs)
    best.pop("best", None)
    return saved


def load_without_best(load: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.load_checkpoint``, but without the best score of an unsettled checkpoint."""
    extra_state = load(trainer, *args, **kwargs)
    if extra_state is not None and not _is_settled(trainer):
        extra_state.pop("best", None)
    updates, rises = trainer.get_num_updates(), rises_of(trainer.get_model())
    if any(0 < updates < one.length and not one.share for one in rises):
        logger.warning(
            "the checkpoint was trained without a warm-up, and its %d updates count as such, so sparsity "
            "changes suddenly: --finetune-from-model counts from 0",
            updates,
        )
    return extra_state


def step_without_loss(step: Callable[..., Any], trainer: Trainer, epoch: int, *loss: Any) -> Any:
    """``Trainer.lr_step``, but ``reduce_lr_on_plateau`` sees no loss until :func:`_is_settled`."""
    return step(trainer, epoch, *(loss if _is_settled(trainer) else ()))


def wait_until_risen(stop: Callable[..., bool], *args: Any) -> bool:
    """``should_stop_early``, but ``--patience`` counts only once nothing rises and heads are decided."""
    trainer = compat.last_trainer()
    return (trainer is None or _is_settled(trainer)) and stop(*args)


def _is_settled(trainer: Trainer) -> bool:
    """Whether nothing rises any more, and heads are decided, before which the loss may grow."""
    decide_at = getattr(getattr(trainer.get_criterion(), "penalty", None), "decide_at", None) or 0
    is_risen = all(rise.share >= 1.0 for rise in rises_of(trainer.get_model()))
    return is_risen and trainer.get_num_updates() >= decide_at
