"""Memory does not grow with the number of updates of a training.

tests/kernels/native/test_sanitizers.py finds every byte that the C code does not free.
"""

import gc
import statistics
from itertools import pairwise

from tests.support import build_model
from tests.training import make_trainer, train


def growth(trainer, after_update, updates=12):
    """The number of objects that each update leaves behind, in the median of three epochs."""
    counts = []
    gc.freeze()  # what earlier tests left is not counted when it comes to be freed
    # The first epoch creates optimizer state and meters, and what goes by the clock may come later
    for epoch in range(1, 6):
        trainer.begin_epoch(epoch)
        for _ in range(updates):
            train(trainer)
            after_update()
        gc.collect()
        counts.append(len(gc.get_objects()))
    gc.unfreeze()
    return statistics.median(after - before for before, after in pairwise(counts[1:])) / updates


def test_no_update_leaves_an_object_behind_and_a_leak_is_seen():
    trainer = make_trainer(build_model(attn_mapping="entmax,fusedmax"), "--lr=0.001")
    leaked = []
    assert growth(trainer, lambda: None) < 0.5
    assert growth(trainer, lambda: leaked.append([])) > 0.5
