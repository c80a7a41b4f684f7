"""The fairseq options in docs/fairseq_options.md: which train together, and which are refused."""

from dataclasses import dataclass

# With α-entmax, with gates on all heads and the penalty, and from a pruned checkpoint
ENTMAX, GATES, PRUNED = COLUMNS = range(3)


@dataclass(frozen=True)
class Run:
    """Options that are trained together."""

    options: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()  # other options that they need
    task: str = "translation"
    columns: tuple[int, ...] = tuple(COLUMNS)
    changes_nothing: bool = False  # the losses stay bitwise equal
    still: tuple[str, ...] = ()  # parts of the names of parameters that need not change
    start: str = ""  # the initial checkpoint: stock, bart or entmax
    criterion: str = "label_smoothed_cross_entropy"  # without the penalty on heads
    shares: bool = True  # whether embeddings are shared


ALIGNING = "label_smoothed_cross_entropy_with_alignment"
QUANT_NOISE = ("--quant-noise-pq=0.05", "--quant-noise-pq-block-size=4")
EVAL_BLEU = (
    *("--eval-bleu", '--eval-bleu-args={"beam": 1, "max_len_a": 0, "max_len_b": 4}'),
    *("--max-valid-steps=1", "--best-checkpoint-metric=bleu", "--batch-size-valid=4"),
    "--maximize-best-checkpoint-metric",
)
BART = (
    *("--layernorm-embedding", "--encoder-learned-pos", "--decoder-learned-pos"),
    *("--activation-fn=gelu", "--no-scale-embedding"),
)
LAYERDROP = ("--encoder-layerdrop=0.5", "--decoder-layerdrop=0.5")
KEPT = ("--encoder-layers-to-keep=1", "--decoder-layers-to-keep=0")
RESET = ("--reset-optimizer", "--reset-lr-scheduler", "--reset-meters", "--reset-dataloader")
ADAPTIVE = (
    *("--adaptive-input", "--adaptive-input-cutoff=100,300", "--tie-adaptive-weights"),
    *("--adaptive-softmax-cutoff=100,300", "--tie-adaptive-proj", "--checkpoint-activations"),
)
LEGACY = ("--ddp-backend=legacy_ddp",)

RUNS = {
    "what changes nothing": Run(
        (
            *("--checkpoint-activations", "--offload-activations", "--load-alignments"),
            *("--num-workers=2", "--fixed-validation-seed=7"),
            *("--store-ema", "--ema-decay=0.9", "--ema-fp32"),
        ),
        changes_nothing=True,
    ),
    "numbers": Run(
        (
            *("--dropout=0.2", "--attention-dropout=0.1", "--activation-dropout=0.1"),
            *("--update-freq=2", "--max-tokens=200", "--batch-size=3", *EVAL_BLEU),
        )
    ),
    "half precision": Run(("--memory-efficient-fp16",)),
    "layers left out": Run(LAYERDROP, columns=(ENTMAX, PRUNED), still=(".layers.",)),
    "layers to keep": Run(KEPT),
    "cross and self": Run(
        ("--cross-self-attention", "--activation-fn=gelu_accurate", *QUANT_NOISE)
    ),
    # Nothing reads the encoder's output
    "no cross": Run(("--no-cross-attention", "--activation-fn=linear"), still=("encoder.",)),
    "adaptive softmax": Run(
        ("--adaptive-softmax-cutoff=100,300",), LEGACY, criterion="adaptive_loss"
    ),
    "embeddings": Run((*BART, "--share-decoder-input-output-embed"), shares=False),
    "no positions": Run(
        (
            *("--no-token-positional-embeddings", "--activation-fn=tanh"),
            *("--encoder-normalize-before", "--decoder-normalize-before"),
        ),
        shares=False,
    ),
    "many languages": Run(task="multilingual"),
    "from BART": Run(
        BART, ("--max-source-positions=1024", "--max-target-positions=1024"), start="bart"
    ),
    "from stock": Run(start="stock"),
    "again": Run(RESET, start="entmax"),
    "alignments": Run(
        ("--load-alignments", "--cross-attn-mapping=entmax,softmax"),
        columns=(ENTMAX, PRUNED),
        criterion=ALIGNING,
    ),
    "text": Run(ADAPTIVE, LEGACY, task="text", criterion="adaptive_loss"),
    "text by layers": Run(
        (LAYERDROP[1], "--decoder-learned-pos", *QUANT_NOISE, "--share-decoder-input-output-embed"),
        task="text",
        columns=(ENTMAX, PRUNED),
        criterion="cross_entropy",
        still=(".layers.",),
    ),
}


_INFINITE = (
    f"--criterion {ALIGNING} is infinite if the last cross-attention gives an aligned word no "
    f"weight, and none of its heads is softmax: give that layer softmax, such as --cross-attn-mapping "
    f"'entmax*5,softmax' for six layers, or --criterion label_smoothed_cross_entropy"
)
# Options, the column in which they are refused, and the error
REFUSALS = {
    "layerdrop": (
        Run(LAYERDROP[:1]),
        GATES,
        "--head-gates: --encoder-layerdrop 0.5 skips layers, and so gates, in some updates: "
        "leave it out while heads are pruned",
    ),
    "xFormers": (
        Run(("--encoder-xformers-att-config={}",)),
        ENTMAX,
        "--encoder-xformers-att-config replaces all of the attention, including its mapping: "
        "leave it out, or use fairseq's own transformer",
    ),
    # tests/criterions/test_fitting.py has the other criterions
    "alignments": (Run(("--load-alignments",), criterion=ALIGNING), ENTMAX, _INFINITE),
}

# Options of fairseq-generate: those that keep the best translations, then others one by one
GENERATION = (
    ("--nbest=2", "--print-alignment=soft", "--max-tokens=300", "--batch-size=3"),
    ("--prefix-size=2",),
    ("--score-reference",),
    ("--sampling", "--sampling-topk=5", "--nbest=2"),
    ("--diverse-beam-groups=2", "--diverse-beam-strength=50", "--nbest=2"),
    ("--fp16",),
    (),  # several checkpoints
    ('--model-overrides={"encoder_layers_to_keep": "0", "decoder_layers_to_keep": "1"}',),
    ('--model-overrides={"decoder_layers_to_keep": "1"}',),
)
