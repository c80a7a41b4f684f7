"""Rising mappings (``--alpha-warmup-updates``) and outputs (``--loss-alpha-warmup-updates``).

Without it: validation and the checkpoint have the share of the previous update, and
``checkpoint_best.pt`` may be from the middle of the rise, denser than asked for.
Remove when: fairseq tells a model its updates also after each, and lets it say that it is not done.
"""

from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_entmax.mappings.rise import rises_of


def tell_updates(step: Callable[..., Any], trainer: Trainer, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.train_step``, after which the rises are told the number of updates."""
    output = step(trainer, *args, **kwargs)
    for rise in rises_of(trainer.get_model()):
        rise.set_num_updates(trainer.get_num_updates())
    return output


def forget_best(
    save: Callable[..., Any], cfg: Any, trainer: Trainer, *args: Any, **kwargs: Any
) -> Any:
    """``save_checkpoint``, but no best score is remembered while anything in the model rises."""
    best = vars(checkpoint_utils.save_checkpoint)
    is_rising = any(rise.share < 1.0 for rise in rises_of(trainer.get_model()))
    if is_rising:
        best.pop("best", None)
    saved = save(cfg, trainer, *args, **kwargs)
    if is_rising:
        best.pop("best", None)
    return saved
