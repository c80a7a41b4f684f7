"""The options of the models: their defaults, their checks, and what they amount to.

Everything that is decided about an option is decided here, once.
"""

from __future__ import annotations

import argparse
import ast
import logging
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from fairseq_entmax import checkpoints
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF
from fairseq_entmax.mappings import Mapping, parse_mappings
from fairseq_entmax.mappings.modules import NORMAL, check_alpha_init
from fairseq_entmax.mappings.registry import MappingSpec, mappings_for_layers
from fairseq_entmax.modules import HardConcreteGate, Heads, gates
from fairseq_entmax.modules.pruning_state import MOST_UPDATES

logger = logging.getLogger(__name__)

# --share-alpha: how far one learned alpha reaches
SHARE_NONE, SHARE_LAYER, SHARE_ATTENTION, SHARE_MODEL = "none", "layer", "attention", "model"
SHARING = (SHARE_NONE, SHARE_LAYER, SHARE_ATTENTION, SHARE_MODEL)

DEFAULTS: dict[str, Any] = {
    "attn_mapping": "entmax",
    "encoder_self_attn_mapping": None,
    "decoder_self_attn_mapping": None,
    "cross_attn_mapping": None,
    "alpha_init": NORMAL,
    "share_alpha": SHARE_NONE,
    "alpha_log_interval": 10,
    "encoder_self_attn_heads": None,
    "decoder_self_attn_heads": None,
    "cross_attn_heads": None,
    "head_gates": None,
    "gate_temperature": gates.TEMPERATURE,
    "gate_stretch": ",".join(map(str, gates.STRETCH)),
    "gate_init": gates.INIT,
    "gate_lr_factor": gates.LR_FACTOR,
    "freeze_decoder": False,
}
MAPPING_OPTIONS = {
    ENCODER_SELF: "encoder_self_attn_mapping",
    DECODER_SELF: "decoder_self_attn_mapping",
    CROSS: "cross_attn_mapping",
}
HEADS_OPTIONS = {
    ENCODER_SELF: "encoder_self_attn_heads",
    DECODER_SELF: "decoder_self_attn_heads",
    CROSS: "cross_attn_heads",
}
# What HardConcreteGate takes, and how each of it is checked
GATE_OPTIONS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "gate_temperature": ("temperature", gates.check_temperature),
    "gate_stretch": ("stretch", gates.check_stretch),
    "gate_init": ("init", gates.check_init),
    "gate_lr_factor": ("lr_factor", gates.check_lr_factor),
}


@dataclass(frozen=True)
class AttentionOptions:
    """The checked options of one model.

    Attributes:
        specs: for each of the three attentions, the mapping of each layer, bottom first.
        heads: for each of the three attentions, the number of heads of each layer.
        gated: the attentions whose heads have gates.
        gate: the arguments of their :class:`HardConcreteGate`.
        freeze_decoder: whether the decoder keeps its parameters in training.
        alpha_init: ``"normal"`` or a number strictly between 1 and 2.
        share_alpha: one of :data:`SHARING`.
        alpha_log_interval: updates between two lines of the record of alpha; 0 for none.
        generator: draws the starting values of alpha.
    """

    specs: dict[str, list[MappingSpec]]
    heads: dict[str, list[int]]
    gated: tuple[str, ...]
    gate: dict[str, Any]
    freeze_decoder: bool
    alpha_init: str | float
    share_alpha: str
    alpha_log_interval: int
    generator: torch.Generator = field(default_factory=torch.Generator, repr=False, compare=False)

    def build_heads(self, attention: str, layer: int) -> Heads:
        """Make what the heads of one attention in one layer need."""
        number = self.heads[attention][layer]
        if number == 0:
            return Heads(0, None)
        gate = HardConcreteGate(number, **self.gate) if attention in self.gated else None
        return Heads(number, self._build_mapping(attention, layer, number), gate)

    def _build_mapping(self, attention: str, layer: int, heads: int) -> Mapping:
        num_alphas = heads if self.share_alpha == SHARE_NONE else 1
        return self.specs[attention][layer].build(num_alphas, self.alpha_init, self.generator)


def option_name(option: str) -> str:
    """``alpha_init`` to ``--alpha-init``."""
    return "--" + option.replace("_", "-")


def add_arguments(parser: Any) -> None:
    """Add the options to an argparse parser or group. Defaults come from the architecture."""
    mapping_help = (
        "softmax, sparsemax, entmax15, entmax (alpha learned per head) or entmax:alpha=1.33 "
        "(fixed); or a list, bottom layer first, such as sparsemax*5,softmax"
    )
    parser.add_argument(
        "--attn-mapping",
        metavar="SPEC",
        type=_argument(parse_mappings),
        help=f"mapping of all three attentions from scores to weights: {mapping_help} "
        f"(default: {DEFAULTS['attn_mapping']})",
    )
    for attention, option in MAPPING_OPTIONS.items():
        parser.add_argument(
            option_name(option),
            metavar="SPEC",
            type=_argument(parse_mappings),
            help=f"mapping of {attention} attention, instead of --attn-mapping",
        )
    parser.add_argument(
        "--alpha-init",
        metavar="normal|NUMBER",
        type=_argument(lambda text: check_alpha_init(text, "the start of alpha")),
        help="start of a learned alpha = 1 + sigmoid(a): a drawn from N(0, 1), or a number "
        f"strictly between 1 and 2 for every head (default: {DEFAULTS['alpha_init']})",
    )
    parser.add_argument(
        "--share-alpha",
        choices=SHARING,
        help="one learned alpha per head (none), per layer and attention (layer), per attention "
        f"(attention), or one in all (model) (default: {DEFAULTS['share_alpha']})",
    )
    parser.add_argument(
        "--alpha-log-interval",
        metavar="N",
        type=_argument(_check_interval),
        help="write every head's alpha to alpha.jsonl in the save directory each N updates; "
        f"0 for never (default: {DEFAULTS['alpha_log_interval']})",
    )
    for attention, option in HEADS_OPTIONS.items():
        stock = "--encoder" if attention == ENCODER_SELF else "--decoder"
        parser.add_argument(
            option_name(option),
            metavar="N,N,...",
            type=_argument(parse_head_counts),
            help=f"heads of {attention} attention in each layer, bottom layer first, such as "
            f"3,0,8, or one number for every layer; a head keeps the width that "
            f"{stock}-attention-heads gives it (default: {stock}-attention-heads in every layer)",
        )
    parser.add_argument(
        "--head-gates",
        metavar="ATTENTION,...",
        type=_argument(parse_attentions),
        help=f"attentions whose heads get a hard-concrete gate: any of {', '.join(ATTENTIONS)}; "
        "train them with --criterion label_smoothed_cross_entropy_with_head_l0 (default: none)",
    )
    gate_help = {
        "gate_temperature": "temperature beta of the gates, from 0.01 and below 1",
        "gate_stretch": "stretch limits gamma below 0 and zeta above 1 of the gates, written "
        "with an equals sign, or one number e for -e and 1 + e",
        "gate_init": "start of log a of every gate; from 2.4 on, with the other defaults, a "
        "gate starts as 1 in evaluation; from -10 to 10",
        "gate_lr_factor": "how much faster than other parameters log a learns, from 0.001 to 10000",
    }
    for option, (_, check) in GATE_OPTIONS.items():
        parser.add_argument(
            option_name(option),
            metavar="GAMMA,ZETA" if option == "gate_stretch" else "NUMBER",
            type=_argument(check),
            help=f"{gate_help[option]} (default: {DEFAULTS[option]})",
        )
    parser.add_argument(
        "--freeze-decoder",
        action="store_true",
        help="keep every parameter of the decoder as it is, shared embeddings included; for "
        "pruning the encoder of a trained model",
    )


def set_defaults(args: Any) -> None:
    """Fill in what was not given, as a fairseq architecture function does."""
    for option, default in DEFAULTS.items():
        if getattr(args, option, None) is None:
            setattr(args, option, default)


def read_options(args: Any, cfg: Any) -> AttentionOptions:
    """Check the options of a model against each other.

    Args:
        args: holds the fields of :data:`DEFAULTS`.
        cfg: fairseq's ``TransformerConfig``, for the numbers of layers and heads.

    Raises:
        ValueError: names the option, what was given, and what is allowed.
    """
    layers = {
        ENCODER_SELF: _num_layers(cfg.encoder),
        DECODER_SELF: _num_layers(cfg.decoder),
        CROSS: _num_layers(cfg.decoder),
    }
    specs, heads = {}, {}
    for attention in ATTENTIONS:
        option = MAPPING_OPTIONS[attention]
        if getattr(args, option) is None:
            option = "attn_mapping"
        read = partial(_specs, getattr(args, option), layers[attention])
        specs[attention] = _named(option, read, attention)
        side = cfg.encoder if attention == ENCODER_SELF else cfg.decoder
        option = HEADS_OPTIONS[attention]
        counts = partial(
            head_counts, getattr(args, option), layers[attention], side.attention_heads
        )
        heads[attention] = _named(option, counts)
    gated = _named("head_gates", partial(parse_attentions, args.head_gates))
    for attention in gated:
        if not sum(heads[attention]):
            raise ValueError(f"--head-gates: {attention} attention has no heads to put gates on")
    if CROSS in gated and cfg.no_cross_attention:
        raise ValueError("--head-gates: --no-cross-attention leaves no cross attention to gate")
    for attention in gated:
        side = cfg.encoder if attention == ENCODER_SELF else cfg.decoder
        if side.layerdrop:
            name = "encoder" if attention == ENCODER_SELF else "decoder"
            raise ValueError(
                f"--head-gates: --{name}-layerdrop {side.layerdrop} leaves layers, and so gates, "
                f"out of updates: leave it out while heads are pruned"
            )
    if args.freeze_decoder and (DECODER_SELF in gated or CROSS in gated):
        raise ValueError(
            f"--head-gates {','.join(gated)}: --freeze-decoder keeps the decoder as it is, so "
            f"only encoder-self can have gates"
        )
    if args.share_alpha not in SHARING:
        raise ValueError(
            f"--share-alpha must be one of {', '.join(SHARING)}, not {args.share_alpha!r}"
        )
    return AttentionOptions(
        specs=specs,
        heads=heads,
        gated=gated,
        gate={
            argument: _named(option, partial(check, getattr(args, option)))
            for option, (argument, check) in GATE_OPTIONS.items()
        },
        freeze_decoder=bool(args.freeze_decoder),
        alpha_init=check_alpha_init(args.alpha_init, "--alpha-init"),
        share_alpha=args.share_alpha,
        alpha_log_interval=_named(
            "alpha_log_interval", partial(_check_interval, args.alpha_log_interval)
        ),
        generator=_generator_of_its_own(),
    )


def _specs(value: Any, num_layers: int | None) -> list[MappingSpec]:
    """The mappings of all layers, or of those that the text names where it is not known."""
    text = _text(value)
    return parse_mappings(text) if num_layers is None else mappings_for_layers(text, num_layers)


def parse_head_counts(value: Any) -> list[int]:
    """Heads of each layer: ``"3,0,8"``, one number, or a list of numbers as YAML has it.

    Raises:
        ValueError: a part is no whole number of 0 or more.
    """
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    counts = [str(part).strip() for part in parts]
    if not counts or not all(re.fullmatch("[0-9]{1,6}", count) for count in counts):
        raise ValueError(f"heads must be whole numbers of 0 or more, such as 3,0,8, not {value!r}")
    return [int(count) for count in counts]


def parse_attentions(value: Any) -> tuple[str, ...]:
    """Names of attentions, separated by commas, in the order of :data:`ATTENTIONS`.

    Raises:
        ValueError: an unknown name, or one twice.
    """
    if value is None or value == "":
        return ()
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    names = [str(part).strip() for part in parts]
    for name in names:
        if name not in ATTENTIONS:
            raise ValueError(f"unknown attention {name!r}; allowed: {', '.join(ATTENTIONS)}")
    if len(set(names)) < len(names):
        raise ValueError(f"an attention is named twice in {value!r}")
    return tuple(attention for attention in ATTENTIONS if attention in names)


def head_counts(value: Any, num_layers: int, most: int) -> list[int]:
    """The number of heads of each layer.

    Args:
        value: what :func:`parse_head_counts` takes; None for all heads.
        num_layers: how many layers there are.
        most: how many heads a layer has place for.

    Raises:
        ValueError: as :func:`parse_head_counts`; not one number for each layer; too many heads.
    """
    if value is None:
        return [most] * num_layers
    counts = parse_head_counts(value)
    if len(counts) == 1:
        counts *= num_layers
    if len(counts) != num_layers:
        raise ValueError(
            f"{len(counts)} numbers of heads for {num_layers} layers, in {value!r}: give one for "
            f"each layer, bottom layer first"
        )
    if max(counts, default=0) > most:
        raise ValueError(
            f"a layer has place for {most} heads at most, as --encoder-attention-heads and "
            f"--decoder-attention-heads say, not {max(counts)}"
        )
    return counts


def keep_layers(args: Any) -> None:
    """Leave out of the lists the layers that ``--encoder-layers-to-keep`` and its like drop.

    fairseq rewrites the numbers of layers in the same way when it builds such a model.
    """
    for attention, option in MAPPING_OPTIONS.items():
        side = "encoder" if attention == ENCODER_SELF else "decoder"
        kept = getattr(args, f"{side}_layers_to_keep", None)
        if not kept:
            continue
        numbers = [int(number) for number in kept.split(",")]
        given = option if getattr(args, option) is not None else "attn_mapping"
        specs = _named(given, partial(_specs, getattr(args, given), None))
        if len(specs) == getattr(args, f"{side}_layers", None) != len(numbers):
            setattr(args, option, ",".join(str(specs[number]) for number in numbers))
        option = HEADS_OPTIONS[attention]
        if getattr(args, option, None) is None:
            continue
        counts = _named(option, partial(parse_head_counts, getattr(args, option)))
        if len(counts) == getattr(args, f"{side}_layers", None) != len(numbers):
            setattr(args, option, ",".join(str(counts[number]) for number in numbers))


def take_heads_of_start(args: Any) -> None:
    """Build the model with the heads of the pruned checkpoint from which training starts.

    Does nothing where options say how many heads there are, and where training starts from
    nothing, from a checkpoint that was not pruned, or from one that cannot be read (fairseq
    says so when it loads it).

    Args:
        args: options of ``fairseq-train``; the numbers of heads are set.
    """
    if any(getattr(args, option, None) is not None for option in HEADS_OPTIONS.values()):
        return
    path = _start_of(args)
    if path is None:
        return
    try:
        settings = checkpoints.model_settings(checkpoints.load_checkpoint(path), path)
    except (OSError, ValueError, checkpoints.UnsafeCheckpointError):
        return
    heads = {option: settings.get(option) for option in HEADS_OPTIONS.values()}
    if any(heads.values()):
        for option, counts in heads.items():
            setattr(args, option, counts)
        logger.info(
            "the heads of each layer are those of %s: %s",
            path,
            " ".join(f"{option_name(name)} {counts}" for name, counts in heads.items() if counts),
        )


def _start_of(args: Any) -> str | None:
    """The checkpoint that fairseq will load first, if there is one: its own rules."""
    if getattr(args, "save_dir", None) is None:  # no training
        return None
    restore = getattr(args, "restore_file", None) or "checkpoint_last.pt"
    last = os.path.join(args.save_dir, restore)
    for path in (last, getattr(args, "finetune_from_model", None), restore):
        if path and os.path.isfile(path):
            return str(path)
    return None


def own_options(settings: Any) -> None:
    """Refuse names in a YAML file that look like options of this model and are none.

    fairseq ignores names that it does not know, and the experiment would be another one.
    """
    for name in map(str, settings):
        looks_own = any(word in name for word in ("mapping", "alpha", "gate", "attn_heads"))
        if looks_own and name not in DEFAULTS:
            raise ValueError(
                f"model.{name} is no option of entmax_transformer; allowed: {', '.join(DEFAULTS)}"
            )


def _text(value: Any) -> str:
    """A mapping as text; a YAML file may give the layers as a list of texts."""
    if isinstance(value, list | tuple):
        return ",".join(_text(item) for item in value)
    if not isinstance(value, str):
        raise ValueError(f"a mapping must be a text such as 'entmax', not {value!r}")
    return value


def _num_layers(cfg: Any) -> int:
    """The layers of the model, of which ``--encoder-layers-to-keep`` may leave out some."""
    kept: str | None = cfg.layers_to_keep
    return len(kept.split(",")) if kept else int(cfg.layers)


def _generator_of_its_own() -> torch.Generator:
    """A generator that follows torch's seed but leaves torch's own sequence as it is.

    So models of all mappings start from the same weights with the same seed.
    """
    with torch.random.fork_rng(devices=[]):
        seed = int(torch.randint(2**62, ()))
    return torch.Generator().manual_seed(seed)


def check_stock_options(args: Any) -> None:
    """Refuse values of fairseq's own options that it would hand to Python's ``eval``.

    A checkpoint brings its own options along, and loading one is not to run code.

    Raises:
        ValueError: names the option and the value.
    """
    cutoff = getattr(args, "adaptive_softmax_cutoff", None)
    if isinstance(cutoff, str):
        try:
            ast.literal_eval(cutoff)
        except (ValueError, SyntaxError):
            raise ValueError(
                f"--adaptive-softmax-cutoff must be a list of numbers, not {cutoff!r}"
            ) from None


def _named(option: str, read: Callable[[], Any], attention: str | None = None) -> Any:
    """Run ``read``; an error gets the name of the option in front."""
    try:
        return read()
    except ValueError as error:
        where = f" ({attention} attention)" if attention else ""
        raise ValueError(f"{option_name(option)}{where}: {error}") from None


def _argument(check: Callable[[str], Any]) -> Callable[[str], str]:
    """An argparse type that keeps the text and turns a ValueError into the parser's error."""

    def checked(text: str) -> str:
        try:
            check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return checked


def _check_interval(value: Any) -> int:
    try:
        interval = int(value)
    except (TypeError, ValueError, OverflowError):
        interval = -1
    if not 0 <= interval <= MOST_UPDATES:
        raise ValueError(
            f"the number of updates must be a whole number, 0 or more and {MOST_UPDATES:,} at the "
            f"most, not {value!r:.100}"
        )
    return interval
