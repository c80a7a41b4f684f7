"""Logs the counts of ``--eval-bleu`` as plain numbers.

Without it: they are NumPy arrays, which checkpoints store with the other metrics. Safe loading
refuses them, so a training with ``--eval-bleu`` could not be resumed.
Remove when: fairseq logs them as numbers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from fairseq.logging import metrics


def log_plain_counts(reduce: Callable[..., None], task: Any, *args: Any, **kwargs: Any) -> None:
    """``TranslationTask.reduce_metrics``, but it logs no arrays."""
    reduce(task, *args, **kwargs)
    for meters in metrics.get_active_aggregators():
        for name in ("_bleu_counts", "_bleu_totals"):
            meter = meters.get(name)
            if meter is not None:
                meter.val, meter.sum = (np.asarray(x).tolist() for x in (meter.val, meter.sum))
