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

import common
import fairseq
import torch
from fairseq import utils
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from synthetic import build, task_of

from fairseq_entmax.criterions.copying import CopyCrossEntropyCriterion

FAIRSEQ = "fairseq's example"
OURS = {
    "softmax": {"attn_mapping": "softmax"},
    "sparse copy head": {"attn_mapping": "softmax", "copy_mapping": "sparsemax"},
    "sparse copy head, aid": {"attn_mapping": "softmax", "copy_mapping": "sparsemax"},
    "alpha-entmax": {"attn_mapping": "entmax"},
}
SIZE = {
    "layers": 4,
    "embed_dim": 512,
    "ffn_embed_dim": 2048,
    "attention_heads": 8,
    "normalize_before": True,
}
EXAMPLE = Path("examples/pointer_generator/pointer_generator_src")
Step = Callable[[], None]


def batch_of(options: argparse.Namespace) -> Any:
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
    sample = {
        "net_input": {
            "src_tokens": source,
            "src_lengths": torch.full((options.sentences,), options.source),
            "prev_output_tokens": target.roll(1, 1),
        },
        "target": target,
        "ntokens": target.numel(),
    }
    return utils.move_to_cuda(sample) if options.device == "cuda" else sample


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
    model = build(
        arch,
        task,
        SIZE,
        source_position_markers=options.markers,
        max_source_positions=1024,
        max_target_positions=1024,
        dropout=0.1,
        force_generation=None,
        **OURS.get(name, {}),
    )
    model = model.to(options.device).train()
    if name == FAIRSEQ:
        return model, LabelSmoothedCrossEntropyCriterion(task, False, 0.1)
    weight = 0.5 if "aid" in name else 0.0
    if weight:
        model.decoder.give_copy_scores()
    return model, CopyCrossEntropyCriterion(task, False, 0.1, copy_loss_weight=weight)


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


def arguments() -> argparse.Namespace:
    parser = common.arguments(__doc__)
    parser.add_argument("--device", type=common.device, default="cpu")
    parser.add_argument("--sentences", type=common.positive, default=4)
    parser.add_argument("--source", type=common.positive, default=400, help="words of a source")
    parser.add_argument("--target", type=common.positive, default=100, help="words of a target")
    parser.add_argument("--words", type=common.positive, default=50_000, help="of the vocabulary")
    parser.add_argument("--markers", type=int, default=1_000)
    parser.add_argument("--rounds", type=common.positive, default=5)
    return parser.parse_args()


def rows_of(
    taken: dict[str, list[dict[str, float]]], peaks: dict[str, dict[str, int]]
) -> list[dict[str, Any]]:
    """What the table has of each contender, after some rounds."""
    rows = []
    for name, times in taken.items():
        row: dict[str, Any] = {"model": name}
        for what, peak in peaks[name].items():
            own, theirs = ([one[what] for one in each] for each in (times, taken[FAIRSEQ]))
            row[f"{what}_seconds"] = statistics.median(own)
            row[f"{what}_ratio"] = common.median_ratio(own, theirs)
            row[f"{what}_mib"] = peak / 2**20
            row[f"{what}_mib_ratio"] = peak / peaks[FAIRSEQ][what]
        rows.append(row)
    return rows


def main() -> None:
    options = arguments()
    import_example()
    task, sample = task_of(options.words, options.markers), batch_of(options)
    names = [FAIRSEQ, *OURS]
    models: dict[str, Any] = {}
    steps: dict[str, dict[str, Step]] = {}
    for name in names:
        models[name], criterion = contender(name, task, options)

        def step(model: Any = models[name], criterion: Any = criterion) -> None:
            criterion(model, sample)[0].backward()

        steps[name] = {"step": step, "loss": loss_step_of(models[name], criterion, sample)}
    settings = {**common.machine(options.device), **vars(options)}
    peaks: dict[str, dict[str, int]] = {}

    def seconds(name: str, turn: int) -> dict[str, float]:
        if not turn:  # kernels are there from now on
            steps[name]["step"]()
            peaks[name] = {}
        spent = {}
        for what, step in steps[name].items():
            models[name].zero_grad(set_to_none=True)
            if not turn:
                gc.collect()
                peaks[name][what] = common.peak_bytes(step, options.device)
                continue
            begin = time.perf_counter()
            step()
            if options.device == "cuda":
                torch.cuda.synchronize()
            spent[what] = time.perf_counter() - begin
        models[name].zero_grad(set_to_none=True)
        return spent

    def write(found: dict[str, list[dict[str, float]]]) -> None:
        common.write_json(options.json, settings, models=rows_of(found, peaks))

    taken = common.in_turns(names, options.rounds, seconds, write)
    columns = {"": ("model", "")}
    for what in ("step", "loss"):
        columns |= {
            f"{what}, s": (f"{what}_seconds", ".3f"),
            f"{what}: ratio": (f"{what}_ratio", ".2f"),
            f"{what}, MiB": (f"{what}_mib", ".0f"),
            f"{what}, MiB: ratio": (f"{what}_mib_ratio", ".2f"),
        }
    print(f"{common.machine_line(settings)}\n{common.table(rows_of(taken, peaks), columns)}")


if __name__ == "__main__":
    main()
