"""What the record of alpha costs: its share of the time of training steps.

    python scripts/benchmarks/alpha_record.py

Trains the model of the quickstart on random words as fairseq's trainer would, with a line
in alpha.jsonl each 10 updates (the default), and prints the median of five runs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from unittest import mock

import torch
from fairseq.logging import metrics
from pruned_generation import SIZES
from synthetic import build, task_of

from fairseq_entmax import compat

WORDS, SENTENCES, LENGTH, UPDATES, RUNS = 2000, 64, 34, 40, 5


def share_of_the_record() -> float:
    """Seconds in ``observe`` over seconds of the whole training steps."""
    with tempfile.TemporaryDirectory() as save_dir:
        task = task_of(WORDS)
        model = build("entmax_transformer", task, SIZES["quickstart"], save_dir=save_dir).train()
        observe, spent = model.monitor.observe, []

        def timed(training: bool) -> None:
            start = time.perf_counter()
            observe(training)
            spent.append(time.perf_counter() - start)

        model.monitor.observe, model.monitor.is_trained = timed, True
        optimizer = torch.optim.Adam(model.parameters())
        tokens = torch.randint(4, WORDS, (SENTENCES, LENGTH))
        lengths = torch.full((SENTENCES,), LENGTH)
        start = time.perf_counter()
        for update in range(UPDATES):
            # What fairseq's trainer would say
            said = mock.patch.object(compat, "trainer_num_updates", return_value=update)
            with said, metrics.aggregate("train"), metrics.aggregate("train_inner"):
                model.set_num_updates(update)
                model(tokens, lengths, tokens)[0].logsumexp(-1).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        total = time.perf_counter() - start
        lines = (Path(save_dir) / "alpha.jsonl").read_text().count("\n")
        assert lines == UPDATES // 10, lines
    return sum(spent) / total


if __name__ == "__main__":
    shares = [share_of_the_record() for _ in range(RUNS)]
    print(f"record of alpha: {100 * statistics.median(shares):.3f} % of the training time")
