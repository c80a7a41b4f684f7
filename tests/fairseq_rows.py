"""Options of fairseq's, and what comes of each: the tables of docs/fairseq_options.md as data.

A row has three claims, in the order of :data:`COLUMNS`. Rows of one run are trained together where
they claim to work, and alone where they do not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairseq_entmax.modules.attention import XFORMERS

COLUMNS = ("α-entmax", "head gates", "after pruning")


@dataclass(frozen=True)
class Works:
    """It trains, or translates, and the checkpoint is what was trained."""

    note: str = ""

    def __str__(self) -> str:
        return f"works, {self.note}" if self.note else "works"


@dataclass(frozen=True)
class Refused:
    """It ends with this sentence, before training starts."""

    sentence: str

    def __str__(self) -> str:
        return f"refused: `{self.sentence}`"


@dataclass(frozen=True)
class AsFairseq:
    """It does what fairseq's own ``transformer`` does, with the same error where that fails."""

    what: str

    def __str__(self) -> str:
        return f"as fairseq: {self.what}"


@dataclass(frozen=True)
class NotApplicable:
    """There is nothing to run."""

    why: str

    def __str__(self) -> str:
        return f"not applicable: {self.why}"


Claim = Works | Refused | AsFairseq | NotApplicable
WORKS = Works()


@dataclass(frozen=True)
class Row:
    """A row of a table: its first cell, the options that it stands for, a claim for each column."""

    name: str
    options: tuple[str, ...] = ()
    claims: tuple[Claim, ...] = (WORKS, WORKS, WORKS)

    def cells(self) -> list[str]:
        return [self.name, *map(str, self.claims)]


@dataclass(frozen=True)
class Run:
    """Rows that are trained together.

    Attributes:
        rows: of it.
        options: of all of them.
        task: what is trained: ``translation``, ``multilingual``, ``bart`` or ``text``.
        changes_nothing: whether losses are those without these options, to the last digit.
        still: parameters that need not move, by a part of their names.
        start: from which checkpoint it starts: ``stock``, ``bart`` or ``entmax``; else from none.
        shares: embeddings, as ``--share-all-embeddings``.
    """

    rows: tuple[Row, ...]
    options: tuple[str, ...] = ()
    task: str = "translation"
    changes_nothing: bool = False
    still: tuple[str, ...] = ()
    start: str = ""
    criterion: str = "label_smoothed_cross_entropy"
    shares: bool = True


def _all(claim: Claim) -> tuple[Claim, ...]:
    return (claim,) * len(COLUMNS)


def _row(name: str, *options: str, **claims: Any) -> Row:
    return Row(name, options, **claims)


def _refused_with_gates(sentence: str) -> tuple[Claim, ...]:
    return (WORKS, Refused(sentence), WORKS)


def _layerdrop(side: str, prefix: str = "") -> Row:
    return _row(
        f"{prefix}`--{side}-layerdrop`",
        f"--{side}-layerdrop=0.5",
        claims=_refused_with_gates(
            f"--head-gates: --{side}-layerdrop 0.5 leaves layers, and so gates, out of updates: "
            f"leave it out while heads are pruned"
        ),
    )


def _unfit(name: str, loss: str) -> Refused:
    return Refused(
        f"--criterion {name} does not train a model with --adaptive-softmax-cutoff: give "
        f"--criterion {loss}, or leave the cutoffs out"
    )


ALIGNING = "label_smoothed_cross_entropy_with_alignment"
_INFINITE = Refused(
    f"--criterion {ALIGNING} is infinite where the last cross-attention gives an aligned word no "
    f"weight, and none of its heads is softmax: give its layer one, such as --cross-attn-mapping "
    f"'entmax*5,softmax' for six layers, or --criterion label_smoothed_cross_entropy"
)
_NO_PENALTY = NotApplicable("no penalty is registered for this loss")
_ON_A_CPU = AsFairseq("an error on a CPU")
_TWO_ON_CPUS = AsFairseq("`ValueError`, it takes each process to have a GPU")
_NO_FAIRSCALE = AsFairseq("`ImportError: … Please install fairscale with: pip install fairscale`")
_HALF = "--memory-efficient-fp16"

RUNS: dict[str, Run] = {
    "as without": Run(
        rows=(
            _row(
                "`--checkpoint-activations`, `--offload-activations`",
                "--checkpoint-activations",
                "--offload-activations",
            ),
            _row("`--load-alignments`", "--load-alignments"),
            _row("`--num-workers 2`", "--num-workers=2"),
            _row("`--ddp-backend slowmo` of one process", "--ddp-backend=slowmo"),
            _row("`--fixed-validation-seed`", "--fixed-validation-seed=7"),
            _row("`--store-ema`", "--store-ema", "--ema-decay=0.9"),
            _row("`--ema-fp32`", "--ema-fp32"),
        ),
        changes_nothing=True,
    ),
    "numbers": Run(
        rows=(
            _row("`--dropout`", "--dropout=0.2"),
            _row("`--attention-dropout`", "--attention-dropout=0.1"),
            _row("`--activation-dropout`", "--activation-dropout=0.1"),
            _row("`--update-freq`", "--update-freq=2"),
            _row("`--max-tokens` with `--batch-size`", "--max-tokens=200", "--batch-size=3"),
            _row("`--share-all-embeddings`", "--share-all-embeddings"),
            _row(
                "`--eval-bleu`",
                "--eval-bleu",
                '--eval-bleu-args={"beam": 1, "max_len_a": 0, "max_len_b": 4}',
                "--max-valid-steps=1",
                "--best-checkpoint-metric=bleu",
                "--maximize-best-checkpoint-metric",
                "--batch-size-valid=4",
            ),
        ),
    ),
    "half": Run(rows=(_row(f"`{_HALF}`", _HALF),)),
    "other precisions": Run(
        rows=tuple(
            _row(f"`{option}`", option, claims=_all(_ON_A_CPU))
            for option in ("--fp16", "--bf16", "--memory-efficient-bf16")
        ),
    ),
    "layerdrop": Run(rows=(_layerdrop("encoder"), _layerdrop("decoder")), still=(".layers.",)),
    "layers to keep": Run(
        rows=(
            _row(
                "`--encoder-layers-to-keep`, `--decoder-layers-to-keep` in training",
                "--encoder-layers-to-keep=1",
                "--decoder-layers-to-keep=0",
                claims=_all(Works("in fairseq an `AttributeError`")),
            ),
        ),
    ),
    "cross and self": Run(
        rows=(
            _row("`--cross-self-attention`", "--cross-self-attention"),
            _row("`--activation-fn gelu_accurate`", "--activation-fn=gelu_accurate"),
            _row("`--quant-noise-pq`", "--quant-noise-pq=0.05", "--quant-noise-pq-block-size=4"),
        ),
    ),
    "no cross": Run(
        rows=(
            _row("`--no-cross-attention`", "--no-cross-attention"),
            _row("`--activation-fn linear`", "--activation-fn=linear"),
        ),
        # Nothing reads what the encoder gives
        still=("encoder.",),
    ),
    "adaptive softmax": Run(
        rows=(
            _row(
                "`--adaptive-softmax-cutoff` with shared embeddings",
                claims=_all(Works("fairseq cannot load such a checkpoint again")),
            ),
        ),
        options=("--adaptive-softmax-cutoff=100,300", "--ddp-backend=legacy_ddp"),
        criterion="adaptive_loss",
    ),
    "adaptive softmax, another loss": Run(
        rows=(
            _row(
                "`--adaptive-softmax-cutoff` with `--criterion label_smoothed_cross_entropy`",
                "--adaptive-softmax-cutoff=100,300",
                claims=(
                    _unfit("label_smoothed_cross_entropy", "adaptive_loss"),
                    _unfit(
                        "label_smoothed_cross_entropy_with_head_l0", "adaptive_loss_with_head_l0"
                    ),
                    _unfit("label_smoothed_cross_entropy", "adaptive_loss"),
                ),
            ),
        ),
    ),
    "xFormers": Run(
        rows=tuple(
            _row(
                f"`--{side}-xformers-att-config`",
                f"--{side}-xformers-att-config={{}}",
                claims=_all(Refused(XFORMERS)),
            )
            for side in ("encoder", "decoder")
        ),
    ),
    "embeddings": Run(
        rows=(
            _row("`--layernorm-embedding`", "--layernorm-embedding"),
            _row(
                "`--encoder-learned-pos`, `--decoder-learned-pos`",
                "--encoder-learned-pos",
                "--decoder-learned-pos",
            ),
            _row("`--activation-fn gelu`", "--activation-fn=gelu"),
            _row("`--no-scale-embedding`", "--no-scale-embedding"),
            _row("`--share-decoder-input-output-embed`", "--share-decoder-input-output-embed"),
        ),
        shares=False,
    ),
    "no positions": Run(
        rows=(
            _row("`--no-token-positional-embeddings`", "--no-token-positional-embeddings"),
            _row("`--activation-fn tanh`", "--activation-fn=tanh"),
            _row(
                "`--encoder-normalize-before`, `--decoder-normalize-before`",
                "--encoder-normalize-before",
                "--decoder-normalize-before",
            ),
            _row("no shared embeddings"),
        ),
        shares=False,
    ),
    "multilingual": Run(
        rows=(_row("`--task translation_multi_simple_epoch`"),), task="multilingual"
    ),
    "pretrained BART": Run(
        rows=(
            _row(
                "`--task translation_from_pretrained_bart`",
                claims=_all(
                    AsFairseq("`AttributeError`, its task looks for settings that it lacks")
                ),
            ),
        ),
        task="bart",
    ),
    "BART": Run(
        rows=(
            _row(
                "`--finetune-from-model` of an `--arch bart_base`",
                claims=_all(
                    Works("with the options of a BART, such as `--layernorm-embedding`, given")
                ),
            ),
        ),
        options=(
            *("--layernorm-embedding", "--encoder-learned-pos", "--decoder-learned-pos"),
            *("--activation-fn=gelu", "--no-scale-embedding"),
            *("--max-source-positions=1024", "--max-target-positions=1024"),
        ),
        start="bart",
    ),
    "stock": Run(rows=(_row("`--finetune-from-model` of an `--arch transformer`"),), start="stock"),
    "again": Run(
        rows=(
            _row(
                "`--restore-file` with `--reset-optimizer`, `--reset-lr-scheduler`, `--reset-meters`, "
                "`--reset-dataloader`",
                "--reset-optimizer",
                "--reset-lr-scheduler",
                "--reset-meters",
                "--reset-dataloader",
            ),
        ),
        start="entmax",
    ),
    "alignments": Run(
        rows=(
            _row(
                f"`--criterion {ALIGNING}`",
                "--load-alignments",
                claims=(_INFINITE, _NO_PENALTY, _INFINITE),
            ),
        ),
        criterion=ALIGNING,
    ),
    "alignments by softmax": Run(
        rows=(
            _row(
                f"`--criterion {ALIGNING}` with `--cross-attn-mapping 'entmax,softmax'`, for two layers",
                "--load-alignments",
                "--cross-attn-mapping=entmax,softmax",
                claims=(WORKS, _NO_PENALTY, WORKS),
            ),
        ),
        criterion=ALIGNING,
    ),
    "text": Run(
        rows=(
            _row(
                "language model: `--adaptive-input`, `--adaptive-softmax-cutoff`, "
                "`--tie-adaptive-weights`",
                "--adaptive-input",
                "--adaptive-input-cutoff=100,300",
                "--adaptive-softmax-cutoff=100,300",
                "--tie-adaptive-weights",
                "--tie-adaptive-proj",
                "--ddp-backend=legacy_ddp",
            ),
            _row("language model: `--checkpoint-activations`", "--checkpoint-activations"),
        ),
        task="text",
        criterion="adaptive_loss",
    ),
    "text by layers": Run(
        rows=(
            _layerdrop("decoder", "language model: "),
            _row("language model: `--decoder-learned-pos`", "--decoder-learned-pos"),
            _row(
                "language model: `--quant-noise-pq`",
                "--quant-noise-pq=0.05",
                "--quant-noise-pq-block-size=4",
            ),
            _row(
                "language model: `--share-decoder-input-output-embed`",
                "--share-decoder-input-output-embed",
            ),
        ),
        task="text",
        criterion="cross_entropy",
        still=(".layers.",),
    ),
}

# Of several processes; tried with one, in a group of its own
BACKENDS = (
    *(
        _row(f"`--ddp-backend {name}` of several processes on CPUs", name, claims=_all(claim))
        for names, claim in (
            (("legacy_ddp", "no_c10d"), WORKS),
            (("pytorch_ddp", "c10d"), _TWO_ON_CPUS),
            (("slowmo", "fully_sharded"), _NO_FAIRSCALE),
        )
        for name in names
    ),
    _row(
        "`--ddp-backend pytorch_ddp` where each process has a GPU, without "
        "`--find-unused-parameters`",
        claims=_all(Works("every parameter has a gradient in every pass")),
    ),
)

# Of fairseq-generate, which change nothing in the best translations: together
_ALSO_PRINTED = (
    _row("`--nbest`", "--nbest=2"),
    _row("`--print-alignment soft`", "--print-alignment=soft"),
    _row("`--max-tokens` with `--batch-size`", "--max-tokens=300", "--batch-size=3"),
    _row("`--num-workers 2`", "--num-workers=2"),
)
# Each alone
_OTHERS = (
    _row("`--prefix-size`", "--prefix-size=2"),
    _row("`--score-reference`", "--score-reference"),
    _row("`--sampling`", "--sampling", "--sampling-topk=5", "--nbest=2"),
    _row(
        "`--diverse-beam-groups`",
        *("--diverse-beam-groups=2", "--diverse-beam-strength=50", "--nbest=2"),
    ),
    _row("`--fp16`", "--fp16"),
    _row("`--path` of several checkpoints"),
    _row(
        "`--model-overrides` with `encoder_layers_to_keep` and `decoder_layers_to_keep`",
        '--model-overrides={"encoder_layers_to_keep": "0", "decoder_layers_to_keep": "1"}',
    ),
    _row(
        "`--model-overrides` with one of them alone",
        '--model-overrides={"decoder_layers_to_keep": "1"}',
        claims=_all(Works("in fairseq a `RuntimeError` on missing keys")),
    ),
)
GENERATION = (*_ALSO_PRINTED, *_OTHERS)
GENERATED = (
    _row("together", *(option for row in _ALSO_PRINTED for option in row.options)),
    *_OTHERS,
)
