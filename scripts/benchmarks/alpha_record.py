"""What the record of alpha costs: its share of the time of training steps.

    python scripts/benchmarks/alpha_record.py

Trains the model of the quickstart on random words as fairseq's trainer would, with a line
in alpha.jsonl each 10 updates (the default), and prints the median of five runs.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from argparse import Namespace
from pathlib import Path

import torch
from fairseq import tasks
from fairseq.data import Dictionary
from fairseq.logging import metrics
from fairseq.models import ARCH_CONFIG_REGISTRY
from fairseq.tasks.translation import TranslationConfig

from fairseq_entmax import compat
from fairseq_entmax.models import EntmaxTransformerModel

WORDS, SENTENCES, LENGTH, UPDATES, RUNS = 2000, 64, 34, 40, 5


def quickstart_model(save_dir: str) -> EntmaxTransformerModel:
    dictionary = Dictionary()
    for number in range(WORDS - dictionary.nspecial):
        dictionary.add_symbol(f"w{number}")
    config = TranslationConfig(source_lang="es", target_lang="en")
    task = tasks.translation.TranslationTask(config, dictionary, dictionary)
    args = Namespace(
        arch="entmax_transformer",
        save_dir=save_dir,
        share_all_embeddings=True,
        **{
            f"{side}_{name}": value
            for side in ("encoder", "decoder")
            for name, value in SIZE.items()
        },
    )
    ARCH_CONFIG_REGISTRY["entmax_transformer"](args)
    return EntmaxTransformerModel.build_model(args, task)


SIZE = {"layers": 2, "embed_dim": 128, "ffn_embed_dim": 256, "attention_heads": 4}


def share_of_the_record() -> float:
    """Seconds in ``observe`` over seconds of the whole training steps."""
    with tempfile.TemporaryDirectory() as save_dir:
        model = quickstart_model(save_dir).train()
        monitor = model.monitor
        assert monitor is not None
        observe, spent = monitor.observe, []

        def timed(training: bool) -> None:
            start = time.perf_counter()
            observe(training)
            spent.append(time.perf_counter() - start)

        monitor.observe = timed  # type: ignore[method-assign]
        optimizer = torch.optim.Adam(model.parameters())
        tokens = torch.randint(4, WORDS, (SENTENCES, LENGTH))
        lengths = torch.full((SENTENCES,), LENGTH)
        start = time.perf_counter()
        for update in range(UPDATES):
            with metrics.aggregate("train"), metrics.aggregate("train_inner"):
                model.set_num_updates(update)
                model(tokens, lengths, tokens)[0].logsumexp(-1).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
        total = time.perf_counter() - start
        lines = (Path(save_dir) / "alpha.jsonl").read_text().count("\n")
        assert lines == UPDATES // 10, lines
    return sum(spent) / total


if __name__ == "__main__":
    assert compat.trainer_num_updates() is None
    shares = [share_of_the_record() for _ in range(RUNS)]
    print(f"record of alpha: {100 * statistics.median(shares):.3f} % of the training time")
