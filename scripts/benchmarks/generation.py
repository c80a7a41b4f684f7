"""How fast models translate: stock fairseq, and each mapping here, side by side in one process.

    python scripts/benchmarks/generation.py                          # the size of the quickstart
    python scripts/benchmarks/generation.py --size base --device cuda --fp16

The models are not trained: each writes translations of one length by beam search with
``fairseq-generate``'s own generator, so that all do the same work; fairseq's model with the search as it
is without this package. ``entmax_bisect`` is the same attention with the function of the package entmax. All take turns in every repeat; the table has the
medians, and ratios to stock fairseq in the same repeat.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
from argparse import Namespace
from collections.abc import Iterator
from typing import Any

import torch
from common import check_device, check_least, rotated, write_json
from fairseq import tasks, utils
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks.translation import TranslationConfig
from pruned_generation import LENGTH, SIZES, WORDS, generator, random_batches, ready, seconds
from training import BISECT, MAPPINGS, STOCK, kernel, use_bisection

import fairseq_entmax.models  # noqa: F401

QUICKSTART = {"layers": 2, "embed_dim": 128, "ffn_embed_dim": 256, "attention_heads": 4}


def built(name: str, task: Any, options: argparse.Namespace) -> Any:
    """A model of one contender, all from the same seed."""
    sides = itertools.product(
        ("encoder", "decoder"), (SIZES | {"quickstart": QUICKSTART})[options.size].items()
    )
    shape = {f"{side}_{key}": value for side, (key, value) in sides}
    arch = "transformer" if name == STOCK else "entmax_transformer"
    mapping = {} if name == STOCK else {"attn_mapping": "softmax" if name == BISECT else name}
    args = Namespace(arch=arch, share_all_embeddings=True, **mapping, **shape)
    ARCH_CONFIG_REGISTRY[arch](args)
    torch.manual_seed(1)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    if name == BISECT:
        use_bisection(model)
    model = ready(model, options)
    return model.half() if options.fp16 else model


@contextlib.contextmanager
def search_of(name: str) -> Iterator[None]:
    """The search of fairseq's model as it is where this package is not loaded."""
    changed: Any = SequenceGenerator.generate
    if name == STOCK:
        SequenceGenerator.generate = changed.__wrapped__
    try:
        yield
    finally:
        SequenceGenerator.generate = changed


def rows_of(sentences: int, times: dict[str, list[float]]) -> list[dict[str, Any]]:
    """What the table has of each contender, after some repeats."""
    return [
        {
            "model": name,
            "sentences_per_second": sentences / statistics.median(own),
            "ratio": statistics.median(a / b for a, b in zip(times[STOCK], own, strict=True)),
            "seconds": own,
        }
        for name, own in times.items()
    ]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", choices=["quickstart", *SIZES], default="quickstart")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--fp16", action="store_true", help="on a GPU, in half precision")
    parser.add_argument("--sentences", type=int, default=64)
    parser.add_argument("--batch", type=int, default=32, help="sentences in a batch")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--no-bisect", action="store_true", help="leave out entmax_bisect")
    parser.add_argument("--json", metavar="FILE", default="generation.json", help="the numbers")
    options = parser.parse_args()
    check_least(parser, options, sentences=1, batch=1, beam=1, repeats=1)
    check_device(parser, options.device)
    if options.fp16 and options.device == "cpu":
        parser.error("--fp16 needs --device cuda")
    return options


def main() -> None:
    options = parsed()
    dictionary = Dictionary()
    for number in range(WORDS - dictionary.nspecial):
        dictionary.add_symbol(f"w{number}")
    task = tasks.translation.TranslationTask(
        TranslationConfig(source_lang="a", target_lang="b"), dictionary, dictionary
    )
    batches = random_batches(dictionary, options)
    if options.device == "cuda":
        batches = utils.move_to_cuda(batches)
    one_length = Namespace(beam=options.beam, max_len_a=0, max_len_b=LENGTH, min_len=LENGTH)
    names = [STOCK, *MAPPINGS, *([] if options.no_bisect else [BISECT])]
    models = {name: built(name, task, options) for name in names}
    searches = {name: generator(task, model, one_length) for name, model in models.items()}
    times: dict[str, list[float]] = {name: [] for name in names}
    settings = {
        **vars(options),
        "kernel": kernel(options.device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    rows: list[dict[str, Any]] = []
    # On a GPU each batch may be the first of a kernel, which is then compiled
    warm_up = batches if options.device == "cuda" else batches[:1]
    for repeat in range(options.repeats + 1):
        for name in rotated(names, repeat):
            part = batches if repeat else warm_up
            with search_of(name):
                spent = seconds(models[name], searches[name], part, options.device)
            if repeat:
                times[name].append(spent)
        if repeat:
            # After each, so that a run that is stopped has written what it has
            rows = rows_of(options.sentences, times)
            write_json(options.json, {"settings": settings, "models": rows})
    print(f"alpha-entmax runs on {kernel(options.device)}")
    print(f"{'model':<14}  {'sentences/s':>11}  {'ratio':>5}")
    for row in rows:
        print(f"{row['model']:<14}  {row['sentences_per_second']:>11.2f}  {row['ratio']:>5.2f}")


if __name__ == "__main__":
    main()
