"""Moving averages of parameters, fairseq's ``--store-ema``, for models of this package."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fairseq import checkpoint_utils
from fairseq.models.ema.ema import EMA
from torch import nn

logger = logging.getLogger(__name__)


def copy_whole_numbers(average: EMA, model: nn.Module) -> None:
    """Have a moving average of a model copy the whole numbers in it, such as decisions of gates."""
    buffers = model.named_buffers(remove_duplicate=False)
    whole = {name for name, buffer in buffers if not buffer.is_floating_point()}
    average.skip_keys = set(average.skip_keys or ()) | whole


@contextmanager
def starting_from_weights(trainer: Any) -> Iterator[None]:
    """Have averages start from the weights, in the block, of a checkpoint that has no averages.

    fairseq means to do that itself, and looks for the weights where it has just deleted them
    (``KeyError: 'model'``). A pruned checkpoint has no averages.

    Args:
        trainer: of fairseq's, that loads a checkpoint in the block.
    """
    load: Callable[..., dict[str, Any]] = checkpoint_utils.load_checkpoint_to_cpu

    def with_averages(*args: Any, **kwargs: Any) -> dict[str, Any]:
        state = load(*args, **kwargs)
        extra = state.get("extra_state")
        if isinstance(extra, dict) and "ema" not in extra:
            logger.warning("the checkpoint has no moving averages: they start from its weights")
            extra["ema"] = dict(state["model"])
        return state

    if not trainer.cfg.ema.store_ema:
        yield
        return
    checkpoint_utils.load_checkpoint_to_cpu = with_averages
    try:
        yield
    finally:
        checkpoint_utils.load_checkpoint_to_cpu = load
