"""Times training by stock fairseq and with each mapping of this package, in one process.

    python scripts/benchmarks/training.py quickstart/data-bin              # the quickstart's model
    python scripts/benchmarks/training.py DATA --model iwslt_de_en --cuda --fp16 --max-tokens 4096
    python scripts/benchmarks/training.py random:400x100 --model iwslt_de_en --max-tokens 4000

DATA is binarised data; scripts/quickstart.sh makes quickstart/data-bin. random:400x100 makes data of
random words, with 400 in each source and 100 in each target. The contenders are fairseq's own
``transformer``; softmax, 1.5-entmax and alpha-entmax of this package, or the mappings of ``--mapping``,
such as ``--mapping fusedmax --mapping "softmax --cross-attn-mapping fusedmax"``; and what a user would
write with the package entmax: the same attention with ``entmax_bisect`` and an alpha per head. Each
has its own fairseq Trainer. They take turns on the same batches for several rounds. The table has
medians over the rounds of target tokens per second, ratios to stock fairseq in the same round, on a
GPU the peak of memory on top of weights and optimizer state, and for sparse mappings the mean number
of keys with a weight for a query of the last batch, in the encoder, in the decoder and from the decoder
to the encoder. The scores of an untrained model hardly differ, so its weights are hardly sparse;
--query-scale multiplies the queries of all contenders, so that scores spread as in a trained model.
Unknown options go to fairseq-train.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import common
import entmax as reference
import synthetic
import torch
from fairseq import options as fairseq_options
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention
from fairseq.trainer import Trainer
from torch import Tensor, nn

from fairseq_entmax import kernels
from fairseq_entmax.attention import MultiheadAttention
from fairseq_entmax.mappings import Mapping

ROOT = Path(__file__).parents[2]
# fairseq's architecture, whose counterpart here has entmax_ in front, and model options
QUICKSTART = (
    "--encoder-layers 2 --decoder-layers 2 --encoder-embed-dim 128 --decoder-embed-dim 128 "
    "--encoder-ffn-embed-dim 256 --decoder-ffn-embed-dim 256 --encoder-attention-heads 4 "
    "--decoder-attention-heads 4 --encoder-normalize-before --decoder-normalize-before "
    "--share-all-embeddings --dropout 0.1"
)
MODELS = {
    "quickstart": ("transformer", QUICKSTART),
    "iwslt_de_en": ("transformer_iwslt_de_en", "--dropout 0.3 --share-decoder-input-output-embed"),
    "wmt_en_de": ("transformer_wmt_en_de", "--dropout 0.1 --share-decoder-input-output-embed"),
    # For data of fairseq-preprocess --only-source; with --max-tokens 2048, two samples a batch
    "language_model": (
        "transformer_lm_gpt",
        "--task language_modeling --tokens-per-sample 1024 --decoder-layers 4 "
        "--decoder-embed-dim 256 --decoder-ffn-embed-dim 1024 --decoder-attention-heads 4 "
        "--share-decoder-input-output-embed --dropout 0.1 --attention-dropout 0",
    ),
}
STOCK, BISECT = "stock fairseq", "entmax_bisect"
HALVES = ("fp16", "bf16")
RANDOM = "random:"
MAPPINGS = ("softmax", "entmax15", "entmax")
SETTINGS = (
    "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam "
    "--adam-betas (0.9,0.98) --lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000 "
    "--required-batch-size-multiple 1 --seed 1 --no-save --num-workers 0"
)


class Bisection(Mapping):
    """The mapping of a user of the package entmax."""

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        self.logit = nn.Parameter(torch.randn(num_heads, 1, 1))

    def forward(self, scores: Tensor) -> Tensor:
        # The package recommends an alpha of at least 1.01
        alpha = 1.01 + 0.99 * torch.sigmoid(self.logit.to(scores.dtype))
        probs: Tensor = reference.entmax_bisect(scores, alpha, dim=-1)
        return probs


def use_bisection(model: nn.Module) -> None:
    """Use ``entmax_bisect`` in every attention."""
    for module in model.modules():
        if isinstance(module, MultiheadAttention):
            module.mapping = Bisection(module.num_heads)


def spread(model: nn.Module, factor: float) -> None:
    """Multiply the scores of every attention, fairseq's or ours."""
    for module in model.modules():
        if isinstance(module, FairseqMultiheadAttention):
            for parameter in module.q_proj.parameters():
                parameter.data *= factor


def keys_with_weight(trainer: Trainer, sample: Any) -> dict[str, float]:
    """The mean number of keys with a weight for a query of a batch, by kind of attention."""
    numbers: dict[str, list[Tensor]] = {}
    prepared, _ = trainer._prepare_sample(sample)

    def noting(found: list[Tensor]) -> Callable[[Tensor], None]:
        return lambda probs: found.append((probs > 0).sum(-1).double().mean())

    with contextlib.ExitStack() as stack, torch.no_grad():
        for name, module in trainer.model.named_modules():
            if not isinstance(module, MultiheadAttention):
                continue
            if module.mapping is None or module.mapping.is_softmax:
                continue
            kind = "cross" if "encoder_attn" in name else name.partition(".")[0]
            stack.enter_context(module.observed(noting(numbers.setdefault(kind, []))))
        trainer.model.eval()
        trainer.model(**prepared["net_input"])
    trainer.model.train()
    return {kind: torch.stack(found).mean().item() for kind, found in numbers.items()}


def trainer(name: str, options: argparse.Namespace, rest: list[str], folder: str) -> Trainer:
    """The Trainer of one contender, as ``fairseq-train`` makes it."""
    arch, model_options = MODELS[options.model]
    words = [options.data, "--user-dir", str(ROOT / "fairseq_entmax")]
    if name == STOCK:
        words += ["--arch", arch]
    else:
        mapping = ["softmax"] if name == BISECT else name.split()
        words += ["--arch", f"entmax_{arch}", "--attn-mapping", *mapping]
    words += [*model_options.split(), *SETTINGS.split(), "--max-tokens", str(options.max_tokens)]
    words += ["--save-dir", folder, *([] if options.cuda else ["--cpu"]), *rest]
    words += ["--fp16"] if options.fp16 else []
    parser = fairseq_options.get_training_parser()
    config = convert_namespace_to_omegaconf(fairseq_options.parse_args_and_arch(parser, words))
    config.common.bf16 = options.bf16  # given the option, fairseq would look for a TPU
    torch.manual_seed(1)
    task = tasks.setup_task(config.task)
    model = task.build_model(config.model)
    if name == BISECT:
        use_bisection(model)
    spread(model, options.query_scale)
    return Trainer(config, task, model, task.build_criterion(config.criterion))


def batches(trainer: Trainer, number: int) -> list[Any]:
    """The first batches of the training set, shuffled as fairseq does."""
    trainer.task.load_dataset("train")
    iterator = trainer.get_train_iterator(epoch=1).next_epoch_itr(shuffle=True)
    return [batch for batch, _ in zip(iterator, range(number), strict=False)]


def run(trainer: Trainer, samples: list[Any]) -> tuple[float, int]:
    """Seconds for one update on each sample, and the peak growth of a GPU's memory in bytes."""
    before = 0
    if trainer.cuda:
        trainer.zero_grad()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
    begin = time.perf_counter()
    with metrics.aggregate("benchmark"):
        for sample in samples:
            trainer.train_step([sample])
    if trainer.cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    return seconds, torch.cuda.max_memory_allocated() - before if trainer.cuda else 0


def kernel(device: str) -> str:
    """The name of the kernel that alpha-entmax uses on a device."""
    return kernels.backend_for(torch.zeros(1, 1, device=device), 0.5).__name__


def rows_of(results: dict[str, list[tuple[float, int]]]) -> list[dict[str, Any]]:
    """The table's row for each contender, after some rounds."""
    speeds = {name: [speed for speed, _ in pairs] for name, pairs in results.items()}
    return [
        {
            "model": name,
            "tokens_per_second": statistics.median(own),
            "ratio": common.median_ratio(own, speeds[STOCK]),
            "peak_mib": max(peak for _, peak in results[name]) / 2**20,
            "speeds": own,
        }
        for name, own in speeds.items()
    ]


def measure(
    options: argparse.Namespace, rest: list[str], folder: str, write: Callable[..., None]
) -> list[dict[str, Any]]:
    """The rows of the table; the rows so far are written after each round."""
    names = [STOCK, *(options.mapping or MAPPINGS), *([] if options.no_bisect else [BISECT])]
    trainers = {name: trainer(name, options, rest, folder) for name in names}
    needed = options.rounds * options.updates
    samples = batches(trainers[STOCK], needed)
    if len(samples) < needed:
        raise SystemExit(f"{options.data} has {len(samples)} batches, but {needed} are needed")
    parts = [samples[at : at + options.updates] for at in range(0, needed, options.updates)]
    # On a GPU each batch size may be the first to use a kernel, which is then compiled
    warm_up = samples if options.cuda else parts[0]
    for one in trainers.values():
        one.begin_epoch(1)

    def of_round(name: str, turn: int) -> tuple[float, int]:
        part = parts[turn - 1] if turn else warm_up
        seconds, peak = run(trainers[name], part)
        return sum(sample["ntokens"] for sample in part) / seconds, peak

    results = common.in_turns(
        names, options.rounds, of_round, lambda found: write(models=rows_of(found))
    )
    rows = rows_of(results)
    for row in rows:
        row["keys_with_weight"] = keys_with_weight(trainers[row["model"]], samples[-1])
    return rows


def data(text: str) -> str:
    if text.startswith(RANDOM):
        synthetic.lengths_of(text.removeprefix(RANDOM))
    elif not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"got {text!r}: there is no such folder")
    return text


def main() -> None:
    parser = common.arguments(__doc__, "training.json")
    parser.add_argument(
        "data", metavar="DATA", type=data, help="binarised data, or random:SOURCExTARGET"
    )
    parser.add_argument("--model", choices=MODELS, default="quickstart")
    parser.add_argument("--max-tokens", type=common.positive, default=1250, help="batch size")
    parser.add_argument("--cuda", action="store_true", help="train on a GPU")
    parser.add_argument("--fp16", action="store_true", help="use half precision, on a GPU")
    parser.add_argument("--bf16", action="store_true", help="use bfloat16, on a GPU")
    parser.add_argument("--threads", type=common.positive, default=torch.get_num_threads())
    parser.add_argument("--query-scale", type=float, default=1.0, metavar="FACTOR")
    parser.add_argument("--rounds", type=common.positive, default=9)
    parser.add_argument("--updates", type=common.positive, default=8, help="updates in a round")
    parser.add_argument(
        "--mapping",
        metavar="SPEC",
        action="append",
        help=f"a mapping, followed by options of its model; default: {', '.join(MAPPINGS)}",
    )
    parser.add_argument("--no-bisect", action="store_true", help="leave out entmax_bisect")
    options, rest = parser.parse_known_args()
    for dtype in HALVES:
        # On a CPU, fairseq has no optimizer for fp16, and takes bf16 for that of a TPU
        if getattr(options, dtype) and not options.cuda:
            parser.error(f"--{dtype} needs --cuda")
    torch.set_num_threads(options.threads)
    on = common.device("cuda" if options.cuda else "cpu")
    settings = {**common.machine(on), **vars(options), "fairseq_options": rest}
    settings["kernel"] = kernel(on)
    logging.disable(logging.WARNING)
    with tempfile.TemporaryDirectory() as folder:
        if options.data.startswith(RANDOM):
            lengths = synthetic.lengths_of(options.data.removeprefix(RANDOM))
            in_batch = max(1, options.max_tokens // max(lengths))
            synthetic.write(folder, options.rounds * options.updates * in_batch, lengths)
            options.data = folder

        def write(**content: Any) -> None:
            common.write_json(options.json, settings, **content)

        rows = measure(options, rest, folder, write)
    write(models=rows)
    print(f"{common.machine_line(settings)}\nalpha-entmax runs on {settings['kernel']}")
    print(table(rows, options.cuda))


def table(rows: list[dict[str, Any]], has_peaks: bool) -> str:
    for row in rows:
        keys = row["keys_with_weight"].items()
        row["keys"] = ", ".join(f"{kind} {number:.0f}" for kind, number in keys)
    columns = {
        "model": ("model", ""),
        "tokens/s": ("tokens_per_second", ".0f"),
        "ratio": ("ratio", ".2f"),
        **({"peak MiB": ("peak_mib", ".0f")} if has_peaks else {}),
        "keys with a weight": ("keys", ""),
    }
    return common.table(rows, columns)


if __name__ == "__main__":
    main()
