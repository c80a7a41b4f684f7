"""One training step of models that copy: fairseq's own example and this package, side by side.

    python scripts/benchmarks/copying.py                    # CNN/DM's sizes, on a CPU
    python scripts/benchmarks/copying.py --device cuda --sentences 16

The contenders are ``transformer_pointer_generator`` of fairseq's examples/pointer_generator, which
fairseq's wheels and checkouts contain, and ``entmax_copy_transformer`` with softmax, with a sparse
copy head, with that head's aid, and with alpha-entmax everywhere. All have the sizes of OpenNMT's
CopyTransformer and the same random batch: sources of 400 words and targets of 100, a vocabulary of
50,000 and 1,000 markers. They take turns, several rounds. The table has the median seconds of
forward, loss and backward pass, the ratio to fairseq's in the same round, the time of the loss alone
(from the decoder's states on), and the peak of memory that a step takes on top of what is there
before it: on a CPU by torch's record of its allocator, in a step that is not timed.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairseq
import torch
from common import check_device, check_least, machine, rotated, write_json
from fairseq import tasks, utils
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.tasks.translation import TranslationConfig
from torch.profiler import ProfilerActivity, profile

import fairseq_entmax.models  # noqa: F401
from fairseq_entmax.criterions.copying import CopyCrossEntropyCriterion

FAIRSEQ = "fairseq's example"
OURS = {
    "softmax": {"attn_mapping": "softmax"},
    "sparse copy head": {"attn_mapping": "softmax", "copy_mapping": "sparsemax"},
    "sparse copy head, aid": {"attn_mapping": "softmax", "copy_mapping": "sparsemax"},
    "alpha-entmax": {"attn_mapping": "entmax"},
}
SIZES = {
    f"{side}_{name}": value
    for side in ("encoder", "decoder")
    for name, value in (
        ("layers", 4),
        ("embed_dim", 512),
        ("ffn_embed_dim", 2048),
        ("attention_heads", 8),
        ("normalize_before", True),
    )
}
EXAMPLE = Path("examples/pointer_generator/pointer_generator_src")
Step = Callable[[], None]


def task_of(words: int, markers: int) -> Any:
    """A task whose dictionary has so many words, and markers at its end."""
    dictionary = Dictionary()
    for number in range(words - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    for number in range(markers):
        dictionary.add_symbol(f"<unk-{number}>")
    config = TranslationConfig(source_lang="source", target_lang="target")
    return tasks.translation.TranslationTask(config, dictionary, dictionary)


def batch_of(options: argparse.Namespace, device: torch.device) -> Any:
    """Random sentences; a tenth of the target's words occur in the source, some as markers."""
    generator = torch.Generator().manual_seed(1)
    shape = options.sentences, options.source
    highest = options.words + options.markers // 10
    source = torch.randint(4, highest, shape, generator=generator)
    target = torch.randint(
        4, options.words, (options.sentences, options.target), generator=generator
    )
    copied = torch.rand(target.shape, generator=generator) < 0.1
    target[copied] = source[:, : options.target][copied]
    source[:, -1] = target[:, -1] = 2
    previous = target.roll(1, 1)
    return {
        "net_input": {
            "src_tokens": source.to(device),
            "src_lengths": torch.full((options.sentences,), options.source).to(device),
            "prev_output_tokens": previous.to(device),
        },
        "target": target.to(device),
        "ntokens": target.numel(),
    }


def import_example() -> None:
    """Register fairseq's example, as ``--user-dir`` does."""
    package = Path(fairseq.__file__).parent
    for folder in (package, package.parent):
        if (folder / EXAMPLE).is_dir():
            utils.import_user_module(Namespace(user_dir=str(folder / EXAMPLE)))
            return
    raise SystemExit(f"this fairseq has no {EXAMPLE}: install a wheel or a checkout that has it")


def contender(name: str, task: Any, options: argparse.Namespace) -> tuple[Any, Any]:
    """A model, and its criterion."""
    arch = "transformer_pointer_generator" if name == FAIRSEQ else "entmax_copy_transformer"
    args = Namespace(
        arch=arch,
        source_position_markers=options.markers,
        share_all_embeddings=True,
        max_source_positions=1024,
        max_target_positions=1024,
        dropout=0.1,
        force_generation=None,
        **SIZES,
        **OURS.get(name, {}),
    )
    ARCH_CONFIG_REGISTRY[arch](args)
    torch.manual_seed(1)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task).to(options.device).train()
    if name == FAIRSEQ:
        return model, LabelSmoothedCrossEntropyCriterion(task, False, 0.1)
    weight = 0.5 if "aid" in name else 0.0
    return model, CopyCrossEntropyCriterion(task, False, 0.1, copy_loss_weight=weight)


def step_of(model: Any, criterion: Any, sample: Any) -> Step:
    def step() -> None:
        criterion(model, sample)[0].backward()

    return step


def loss_step_of(model: Any, criterion: Any, sample: Any) -> Step:
    """The same from the decoder's states on: output layer, mixture, loss, and back to the states."""
    source = sample["net_input"]
    with torch.no_grad():
        encoded = model.encoder(source["src_tokens"], source["src_lengths"])
        features, extra = model.decoder(
            source["prev_output_tokens"], encoder_out=encoded, features_only=True
        )
    features = features.detach()

    def same_states(*_: Any, **__: Any) -> Any:
        return features.clone().requires_grad_(), dict(extra)

    def step() -> None:
        model.decoder.extract_features = same_states
        whole, model.encoder.forward = model.encoder.forward, lambda *_, **__: encoded
        try:
            criterion(model, sample)[0].backward()
        finally:
            del model.decoder.extract_features
            model.encoder.forward = whole

    return step


def seconds_of(model: Any, step: Step, device: torch.device) -> float:
    model.zero_grad(set_to_none=True)
    begin = time.perf_counter()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def peak_of(model: Any, step: Step, device: torch.device) -> int:
    """Bytes that a step holds at its worst moment, on top of what was there before."""
    model.zero_grad(set_to_none=True)
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    events = [e for e in record.profiler.kineto_results.events() if e.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak


def rows_of(
    taken: dict[str, list[tuple[float, float]]], peaks: dict[str, list[int]]
) -> list[dict[str, Any]]:
    """What the table has of each contender, after some rounds."""
    rows = []
    for name, times in taken.items():
        row: dict[str, Any] = {"model": name}
        for column, what in enumerate(("step", "loss")):
            own = [one[column] for one in times]
            theirs = [one[column] for one in taken[FAIRSEQ]]
            row[f"{what}_seconds"] = statistics.median(own)
            row[f"{what}_ratio"] = statistics.median(
                mine / fairseqs for mine, fairseqs in zip(own, theirs, strict=True)
            )
            row[f"{what}_mib"] = peaks[name][column] / 2**20
            row[f"{what}_mib_ratio"] = peaks[name][column] / peaks[FAIRSEQ][column]
        rows.append(row)
    return rows


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu", type=torch.device)
    parser.add_argument("--sentences", type=int, default=4)
    parser.add_argument("--source", type=int, default=400, help="words of a source")
    parser.add_argument("--target", type=int, default=100, help="words of a target")
    parser.add_argument("--words", type=int, default=50_000, help="of the vocabulary")
    parser.add_argument("--markers", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", metavar="FILE", help="the numbers")
    options = parser.parse_args()
    check_device(parser, options.device.type)
    check_least(parser, options, sentences=1, source=1, target=1, words=10, markers=0, rounds=1)
    return options


def main() -> None:
    options = parsed()
    import_example()
    task, sample = task_of(options.words, options.markers), batch_of(options, options.device)

    names = [FAIRSEQ, *OURS]
    models: dict[str, Any] = {}
    steps: dict[str, tuple[Step, Step]] = {}
    peaks = {}
    for name in names:
        model, criterion = contender(name, task, options)
        if "aid" in name:
            model.decoder.give_copy_scores()
        models[name] = model
        steps[name] = (
            step_of(model, criterion, sample),
            loss_step_of(model, criterion, sample),
        )
        steps[name][0]()  # kernels are there from now on
        peaks[name] = [peak_of(model, step, options.device) for step in steps[name]]
        model.zero_grad(set_to_none=True)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    rows: list[dict[str, Any]] = []
    for number in range(options.rounds):
        for name in rotated(names, number):
            whole, part = (seconds_of(models[name], step, options.device) for step in steps[name])
            taken[name].append((whole, part))
        rows = rows_of(taken, peaks)
        if options.json:  # after each, so that a run that is stopped has written what it has
            settings = {**machine(options.device.type), **vars(options)}
            write_json(options.json, {"settings": settings, "models": rows})
    print(f"{'':24}{'step':>9}{'ratio':>7}{'MiB':>8}{'ratio':>7}  ", end="")
    print(f"{'loss':>9}{'ratio':>7}{'MiB':>8}{'ratio':>7}")
    for row in rows:
        print(f"{row['model']:24}", end="")
        for what in ("step", "loss"):
            print(
                f"{row[what + '_seconds']:8.3f}s{row[what + '_ratio']:7.2f}"
                f"{row[what + '_mib']:8.0f}{row[what + '_mib_ratio']:7.2f}  ",
                end="",
            )
        print()


if __name__ == "__main__":
    main()
