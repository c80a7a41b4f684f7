"""Makes fairseq's ``--store-ema``, moving averages of parameters, fit models of this package.

Without it: ``--store-ema`` fails on decisions of gates, and on a checkpoint without averages.
Remove when: fairseq's average copies integers, and can start from the weights of a checkpoint.
"""

import logging
from collections.abc import Callable
from typing import Any

from fairseq.models.ema.ema import EMA
from torch import nn

from fairseq_entmax.fairseq_patches.replacing import is_ours

logger = logging.getLogger(__name__)


def average_no_whole_numbers(
    init: Callable[..., None], ema: EMA, model: nn.Module, *args: Any, **kwargs: Any
) -> None:
    """``EMA.__init__``, but integers, such as decisions of gates, are copied, not averaged."""
    init(ema, model, *args, **kwargs)
    if is_ours(model):
        buffers = model.named_buffers(remove_duplicate=False)
        whole = {name for name, buffer in buffers if not buffer.is_floating_point()}
        ema.skip_keys = set(ema.skip_keys or ()) | whole


def restore(load: Callable[..., Any], trainer: Any, *args: Any, **kwargs: Any) -> Any:
    """``Trainer.load_checkpoint``, but a missing moving average starts from the loaded weights."""
    config = trainer.cfg.ema
    if not config.store_ema or not is_ours(trainer.get_model()):
        return load(trainer, *args, **kwargs)
    config.store_ema = False
    try:
        extra_state = load(trainer, *args, **kwargs)
    finally:
        config.store_ema = True
    if extra_state is not None:
        if "ema" not in extra_state:
            logger.warning("the checkpoint has no moving averages: they start from its weights")
        trainer.ema.restore(extra_state.get("ema", trainer.get_model().state_dict()))
        if config.ema_fp32:
            trainer.ema.build_fp32_params(extra_state.get("ema_fp32_params"))
    return extra_state
