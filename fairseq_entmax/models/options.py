"""The options of the models: their defaults, their checks, and what they amount to.

Everything that is decided about an option is decided here, once.
"""

from __future__ import annotations

import argparse
import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from fairseq_entmax.mappings import Mapping, parse_mappings
from fairseq_entmax.mappings.modules import NORMAL, check_alpha_init
from fairseq_entmax.mappings.registry import MappingSpec, mappings_for_layers
from fairseq_entmax.modules.attention import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF

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
}
MAPPING_OPTIONS = {
    ENCODER_SELF: "encoder_self_attn_mapping",
    DECODER_SELF: "decoder_self_attn_mapping",
    CROSS: "cross_attn_mapping",
}


@dataclass(frozen=True)
class AttentionOptions:
    """The checked options of one model.

    Attributes:
        specs: for each of the three attentions, the mapping of each layer, bottom first.
        heads: for each of the three attentions, the number of heads of a layer.
        alpha_init: ``"normal"`` or a number strictly between 1 and 2.
        share_alpha: one of :data:`SHARING`.
        alpha_log_interval: updates between two lines of the record of alpha; 0 for none.
        generator: draws the starting values of alpha.
    """

    specs: dict[str, list[MappingSpec]]
    heads: dict[str, int]
    alpha_init: str | float
    share_alpha: str
    alpha_log_interval: int
    generator: torch.Generator = field(default_factory=torch.Generator, repr=False, compare=False)

    def build_mapping(self, attention: str, layer: int) -> Mapping:
        """Make the mapping of one attention in one layer."""
        num_alphas = self.heads[attention] if self.share_alpha == SHARE_NONE else 1
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
    specs = {}
    for attention in ATTENTIONS:
        option = MAPPING_OPTIONS[attention]
        if getattr(args, option) is None:
            option = "attn_mapping"
        read = partial(_specs, getattr(args, option), layers[attention])
        specs[attention] = _named(option, read, attention)
    if args.share_alpha not in SHARING:
        raise ValueError(
            f"--share-alpha must be one of {', '.join(SHARING)}, not {args.share_alpha!r}"
        )
    return AttentionOptions(
        specs=specs,
        heads={
            ENCODER_SELF: cfg.encoder.attention_heads,
            DECODER_SELF: cfg.decoder.attention_heads,
            CROSS: cfg.decoder.attention_heads,
        },
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


def keep_mappings(args: Any) -> None:
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


def own_options(settings: Any) -> None:
    """Refuse names in a YAML file that look like options of this model and are none.

    fairseq ignores names that it does not know, and the experiment would be another one.
    """
    for name in settings:
        if ("mapping" in str(name) or "alpha" in str(name)) and name not in DEFAULTS:
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
    except (TypeError, ValueError):
        interval = -1
    if interval < 0:
        raise ValueError(f"the number of updates must be a whole number, 0 or more, not {value!r}")
    return interval
