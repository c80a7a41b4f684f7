"""Memory does not grow with the number of updates of a training.

tests/kernels/native/test_sanitizers.py finds every byte that the C code does not free.
"""

import gc
import json
import statistics
import subprocess
import sys
from itertools import pairwise

from tests.support import build_model
from tests.training import make_trainer, train


def growth(trainer, after_update, updates=12):
    """The number of objects that each update leaves behind, in the median of three epochs."""
    counts = []
    # The first epoch creates optimizer state and meters, and what goes by the clock may come later
    for epoch in range(1, 6):
        trainer.begin_epoch(epoch)
        for _ in range(updates):
            train(trainer)
            after_update()
        gc.collect()
        counts.append(len(gc.get_objects()))
    return statistics.median(after - before for before, after in pairwise(counts[1:])) / updates


def growth_without_and_with_a_leak():
    trainer = make_trainer(build_model(attn_mapping="entmax,fusedmax"), "--lr=0.001")
    leaked = []
    return growth(trainer, lambda: None), growth(trainer, lambda: leaked.append([]))


def test_no_update_leaves_an_object_behind_and_a_leak_is_seen():
    # In a process of its own: what other tests left running in this one also makes objects
    code = f"from {__name__} import *; print(json.dumps(growth_without_and_with_a_leak()))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    without, with_leak = json.loads(run.stdout.splitlines()[-1])
    assert without < 0.5 < with_leak
