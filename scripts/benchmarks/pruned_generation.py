"""Times translation by models without some of their heads, against one with all of them.

    python scripts/benchmarks/pruned_generation.py                              # random models
    python scripts/benchmarks/pruned_generation.py --size base --device cuda
    python scripts/benchmarks/pruned_generation.py DATA --path FULL.pt PRUNED.pt    # your models

Without checkpoints, it builds a Transformer with all its heads and three others that keep 1/2,
1/4 and none of them; each writes translations of a fixed length, so that all do the same work.
With checkpoints, it translates sentences of the test set as ``fairseq-generate`` does. The models
take turns in every repeat, and the table has the medians. Ratios are to the first model.
"""

from __future__ import annotations

import argparse
import statistics
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from common import arguments, device, in_turns, machine, median_ratio, positive, table, write_json
from fairseq import checkpoint_utils, utils
from fairseq.data import Dictionary
from synthetic import build, task_of

from fairseq_entmax.mappings import parse_mappings

SIZES = {
    "quickstart": {"layers": 2, "embed_dim": 128, "ffn_embed_dim": 256, "attention_heads": 4},
    "small": {"layers": 3, "embed_dim": 128, "ffn_embed_dim": 256, "attention_heads": 8},
    "base": {"layers": 6, "embed_dim": 512, "ffn_embed_dim": 2048, "attention_heads": 8},
}
LENGTH = 30
ATTENTIONS = ("encoder_self", "decoder_self", "cross")
Batches = list[dict[str, Any]]


class Translator:
    """A model that translates batches, as fairseq-generate does."""

    def __init__(
        self,
        model: Any,
        task: Any,
        batches: Batches,
        options: argparse.Namespace,
        lengths: tuple[int, int] = (LENGTH, LENGTH),
    ) -> None:
        self.model = model.eval().to(options.device)
        model.prepare_for_inference_(Namespace(generation=Namespace(print_alignment=None)))
        least, most = lengths
        decoding = Namespace(beam=options.beam, max_len_a=0, max_len_b=most, min_len=least)
        self.search = task.build_generator([model], decoding)
        self._is_on_gpu = options.device == "cuda"
        self.batches = utils.move_to_cuda(batches) if self._is_on_gpu else batches

    def seconds(self, turn: int) -> float:
        """Seconds that translating takes; the first turn warms up."""
        begin = time.perf_counter()
        # On a GPU each batch may be the first to use a kernel, which is then compiled
        batches = self.batches if turn or self._is_on_gpu else self.batches[:1]
        with torch.no_grad():
            for batch in batches:
                self.search.generate([self.model], batch)
        if self._is_on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter() - begin


def rows_of(
    translators: dict[str, Translator], times: dict[str, list[float]]
) -> list[dict[str, Any]]:
    """The table's row for each model, after some repeats; ratios are to the first model."""
    first = next(iter(times.values()))
    rows = []
    for name, own in times.items():
        model, batches = translators[name].model, translators[name].batches
        sentences = sum(len(batch["net_input"]["src_tokens"]) for batch in batches)
        rows.append(
            {
                "model": name,
                "parameters": sum(p.numel() for p in {*model.parameters()}),
                "sentences_per_second": sentences / statistics.median(own),
                "ratio": median_ratio(first, own),
                "seconds": [*own],
            }
        )
    return rows


def random_batches(dictionary: Dictionary, options: argparse.Namespace) -> Batches:
    """Sentences of one length."""
    seed = torch.Generator().manual_seed(0)
    shape = (options.sentences, LENGTH)
    words = torch.randint(dictionary.nspecial, len(dictionary), shape, generator=seed)
    words[:, -1] = dictionary.eos()
    return [
        {"net_input": {"src_tokens": rows, "src_lengths": torch.full((len(rows),), LENGTH)}}
        for rows in words.split(options.batch)
    ]


def built_models(options: argparse.Namespace) -> dict[str, Translator]:
    """Models with fewer and fewer heads."""
    task, size = task_of(), SIZES[options.size]
    batches = random_batches(task.source_dictionary, options)
    models = {}
    for name, part in (("all", 1.0), ("1/2", 0.5), ("1/4", 0.25), ("no", 0.0)):
        remaining = str(int(part * size["attention_heads"]))
        counts = {f"{attention}_attn_heads": remaining for attention in ATTENTIONS}
        model = build("entmax_transformer", task, size, attn_mapping=options.mapping, **counts)
        models[f"{name} heads"] = Translator(model, task, batches, options)
    return models


def loaded_models(options: argparse.Namespace) -> dict[str, Translator]:
    """The models of the checkpoints, with the first sentences of the test set."""
    models = {}
    for path in options.path:
        [model], _, task = checkpoint_utils.load_model_ensemble_and_task(
            [path], arg_overrides={"data": options.data}
        )
        task.load_dataset("test")
        dataset = task.dataset("test")
        sentences = range(min(options.sentences, len(dataset)))
        groups = [sentences[i : i + options.batch] for i in sentences[:: options.batch]]
        batches = [dataset.collater([dataset[index] for index in group]) for group in groups]
        models[path] = Translator(model, task, batches, options, (1, 200))
    return models


def parser(doc: str | None, file: str | None, sizes: Sequence[str]) -> argparse.ArgumentParser:
    """A parser of the options that this and generation.py share."""
    own = arguments(doc, file)
    own.add_argument("--size", choices=sizes, default=sizes[0], help="size of models made here")
    own.add_argument("--device", default="cpu", type=device)
    own.add_argument("--batch", type=positive, default=32, help="sentences in a batch")
    own.add_argument("--beam", type=positive, default=5)
    return own


def main() -> None:
    own = parser(__doc__, None, ["small", "base"])
    own.add_argument("data", nargs="?", metavar="DATA", help="binarised data, with --path")
    own.add_argument("--path", nargs="+", default=[], metavar="CHECKPOINT")
    own.add_argument("--mapping", default="softmax", help="mapping of models made here")
    own.add_argument("--sentences", type=positive, default=128)
    own.add_argument("--repeats", type=positive, default=5)
    options = own.parse_args()
    if bool(options.path) != bool(options.data):
        own.error("DATA and --path belong together: give both, or neither")
    for path in options.path:
        if not Path(path).is_file():
            own.error(f"--path got {path!r}: there is no such file")
    try:
        parse_mappings(options.mapping)
    except ValueError as error:
        own.error(f"--mapping: {error}")
    models = loaded_models(options) if options.path else built_models(options)
    times = in_turns([*models], options.repeats, lambda name, turn: models[name].seconds(turn))
    rows = rows_of(models, times)
    print(
        table(
            rows,
            {
                "model": ("model", ""),
                "parameters": ("parameters", ","),
                "sentences/s": ("sentences_per_second", ".2f"),
                "ratio": ("ratio", ".2f"),
            },
        )
    )
    write_json(options.json, {**machine(options.device), **vars(options)}, models=rows)


if __name__ == "__main__":
    main()
