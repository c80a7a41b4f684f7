"""How fast a model translates with some of its heads gone, against one with all of them.

    python scripts/benchmarks/pruned_generation.py                              # models of its own
    python scripts/benchmarks/pruned_generation.py --size base --device cuda
    python scripts/benchmarks/pruned_generation.py DATA --path FULL.pt PRUNED.pt    # your models

Without checkpoints it builds a Transformer with all its heads and three others that keep 1/2,
1/4 and none of them, and lets each write translations of one length, so that all do the same
work. With checkpoints it translates sentences of the test set as ``fairseq-generate`` does.
The models take turns, in every repeat, and the table has the medians. Ratios are to the first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, tasks, utils
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.translation import TranslationConfig

import fairseq_entmax.models  # noqa: F401
from fairseq_entmax.mappings import parse_mappings

SIZES = {
    "small": {"layers": 3, "embed_dim": 128, "ffn_embed_dim": 256, "attention_heads": 8},
    "base": {"layers": 6, "embed_dim": 512, "ffn_embed_dim": 2048, "attention_heads": 8},
}
WORDS, LENGTH = 8000, 30
Batches = list[dict[str, Any]]
Timed = dict[str, tuple[Any, Any, Batches]]


def built_models(options: argparse.Namespace) -> Timed:
    """Models with fewer and fewer heads, and random sentences of one length."""
    dictionary = Dictionary()
    for number in range(WORDS - dictionary.nspecial):
        dictionary.add_symbol(f"w{number}")
    config = TranslationConfig(source_lang="a", target_lang="b")
    task = tasks.translation.TranslationTask(config, dictionary, dictionary)
    size = SIZES[options.size]
    heads = size["attention_heads"]
    sides = itertools.product(("encoder", "decoder"), size.items())
    shape = {f"{side}_{name}": value for side, (name, value) in sides}
    batches = random_batches(dictionary, options)
    models: Timed = {}
    for name, kept in (("all", heads), ("1/2", heads // 2), ("1/4", heads // 4), ("no", 0)):
        counts = {
            f"{attention}_attn_heads": str(kept)
            for attention in ("encoder_self", "decoder_self", "cross")
        }
        args = Namespace(arch="entmax_transformer", attn_mapping=options.mapping, **shape, **counts)
        ARCH_CONFIG_REGISTRY[args.arch](args)
        torch.manual_seed(1)
        model = ARCH_MODEL_REGISTRY[args.arch].build_model(args, task)
        one_length = Namespace(beam=options.beam, max_len_a=0, max_len_b=LENGTH, min_len=LENGTH)
        models[f"{name} heads"] = ready(model, options), generator(task, model, one_length), batches
    return models


def random_batches(dictionary: Dictionary, options: argparse.Namespace) -> Batches:
    seed = torch.Generator().manual_seed(0)
    batches = []
    for start in range(0, options.sentences, options.batch):
        rows = min(options.batch, options.sentences - start)
        words = torch.randint(dictionary.nspecial, len(dictionary), (rows, LENGTH), generator=seed)
        words[:, -1] = dictionary.eos()
        lengths = torch.full((rows,), LENGTH)
        batches.append({"net_input": {"src_tokens": words, "src_lengths": lengths}})
    return batches


def loaded_models(options: argparse.Namespace) -> Timed:
    """The checkpoints, and the first sentences of the test set."""
    models: Timed = {}
    for path in options.path:
        [model], _, task = checkpoint_utils.load_model_ensemble_and_task(
            [path], arg_overrides={"data": options.data}
        )
        task.load_dataset("test")
        sentences = range(min(options.sentences, len(task.dataset("test"))))
        groups = [sentences[i : i + options.batch] for i in sentences[:: options.batch]]
        dataset = task.dataset("test")
        batches = [dataset.collater([dataset[index] for index in group]) for group in groups]
        decoding = Namespace(beam=options.beam, max_len_a=0, max_len_b=200, min_len=1)
        models[path] = ready(model, options), generator(task, model, decoding), batches
    return models


def ready(model: Any, options: argparse.Namespace) -> Any:
    model = model.eval().to(options.device)
    model.prepare_for_inference_(Namespace(generation=Namespace(print_alignment=None)))
    return model


def generator(task: Any, model: Any, decoding: Namespace) -> Any:
    return task.build_generator([model], decoding)


def seconds(model: Any, search: Any, batches: Batches, device: str) -> float:
    begin = time.perf_counter()
    with torch.no_grad():
        for batch in batches:
            search.generate([model], batch)
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def table(rows: list[dict[str, Any]]) -> str:
    width = max(len(row["model"]) for row in rows)
    lines = [f"{'model':<{width}}  {'parameters':>12}  {'sentences/s':>11}  {'ratio':>5}"]
    lines += [
        f"{row['model']:<{width}}  {row['parameters']:>12,}  {row['sentences_per_second']:>11.2f}  "
        f"{row['ratio']:>5.2f}"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", metavar="DATA", help="binarised data, with --path")
    parser.add_argument("--path", nargs="+", default=[], metavar="CHECKPOINT")
    parser.add_argument("--size", choices=SIZES, default="small", help="of its own models")
    parser.add_argument("--mapping", default="softmax", help="of its own models")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sentences", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32, help="sentences in a batch")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="write the numbers here too")
    options = parser.parse_args()
    if bool(options.path) != bool(options.data):
        parser.error("DATA and --path belong together: give both, or neither")
    if min(options.sentences, options.batch, options.beam, options.repeats) < 1:
        parser.error("--sentences, --batch, --beam and --repeats must be 1 or more")
    for path in options.path:
        if not Path(path).is_file():
            parser.error(f"--path got {path!r}: there is no such file")
    try:
        parse_mappings(options.mapping)
    except ValueError as error:
        parser.error(f"--mapping: {error}")
    models = loaded_models(options) if options.path else built_models(options)
    times: dict[str, list[float]] = {name: [] for name in models}
    for repeat in range(options.repeats + 1):
        for name, (model, search, batches) in models.items():
            batches = utils.move_to_cuda(batches) if options.device == "cuda" else batches
            # The first round warms up
            if repeat == 0:
                seconds(model, search, batches[:1], options.device)
            else:
                times[name].append(seconds(model, search, batches, options.device))
    first = statistics.median(next(iter(times.values())))
    rows = []
    for name, (model, _, batches) in models.items():
        median = statistics.median(times[name])
        number = sum(len(batch["net_input"]["src_tokens"]) for batch in batches)
        rows.append(
            {
                "model": name,
                "parameters": sum(p.numel() for p in {*model.parameters()}),
                "sentences_per_second": number / median,
                "ratio": first / median,
                "seconds": times[name],
            }
        )
    print(table(rows))
    if options.json:
        settings = {**vars(options), "threads": torch.get_num_threads(), "torch": torch.__version__}
        text = json.dumps({"settings": settings, "models": rows}, indent=2)
        Path(options.json).write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
