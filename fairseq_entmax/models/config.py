"""The options of the models, written once.

From :class:`AttentionConfig` come the arguments of commands, the defaults of architectures, the
names that a YAML file may have, and what is checked of each option by itself. What they amount
to together is in :mod:`fairseq_entmax.models.options`.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any

from fairseq_entmax.attention import gates
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF
from fairseq_entmax.mappings.base import SHARE_NONE, SHARING
from fairseq_entmax.mappings.entmax import NORMAL, check_alpha_init
from fairseq_entmax.mappings.factor import NO_FACTOR, check_lr_factor
from fairseq_entmax.mappings.functional import check_alpha
from fairseq_entmax.mappings.layers import LayerSpec, layers_text, parse_mappings
from fairseq_entmax.mappings.rise import MOST_UPDATES, check_warmup
from fairseq_entmax.mappings.strengths import (
    OSCAR_INIT,
    P_INIT,
    TV_INIT,
    check_p_init,
    check_strength_init,
)

# Attention to option, such as encoder_self_attn_mapping
MAPPING_OPTIONS = {name: f"{name.replace('-', '_')}_attn_mapping" for name in ATTENTIONS}
HEADS_OPTIONS = {name: f"{name.replace('-', '_')}_attn_heads" for name in ATTENTIONS}
# What looks like an option of this package, and is refused where it is none
_OWN_WORDS = ("mapping", "alpha", "gate", "attn_heads", "tv_", "oscar", "copy_")


def parse_mapping_option(value: Any) -> list[LayerSpec]:
    """Mappings as text, or as the list of texts, one for each layer, that a YAML file may have."""
    return parse_mappings(mapping_text(value))


def mapping_text(value: Any) -> str:
    """One text of what :func:`parse_mapping_option` takes."""
    if isinstance(value, list | tuple):
        return ",".join(mapping_text(item) for item in value)
    if not isinstance(value, str):
        raise ValueError(f"a mapping must be a text such as 'entmax', not {value!r}")
    return value


def parse_head_counts(value: Any) -> list[int]:
    """Heads of each layer: ``"3,0,8"``, one number, or a list of numbers as YAML has it."""
    counts = _parts(value)
    if not all(re.fullmatch("[0-9]{1,6}", count) for count in counts):
        raise ValueError(f"heads must be whole numbers of 0 or more, such as 3,0,8, not {value!r}")
    return [int(count) for count in counts]


def parse_attentions(value: Any) -> tuple[str, ...]:
    """Names of attentions, separated by commas, in the order of :data:`ATTENTIONS`."""
    names = _parts(value) if value else []
    for name in names:
        if name not in ATTENTIONS:
            raise ValueError(f"unknown attention {name!r}; allowed: {', '.join(ATTENTIONS)}")
    if len(set(names)) < len(names):
        raise ValueError(f"an attention is named twice in {value!r}")
    return tuple(attention for attention in ATTENTIONS if attention in names)


def _parts(value: Any) -> list[str]:
    parts = value if isinstance(value, list | tuple) else str(value).split(",")
    return [str(part).strip() for part in parts] or [""]


def whole_number(least: int, most: int) -> Callable[[Any], int]:
    """What checks a whole number in a range; text, or a number as YAML has it."""

    def check(value: Any) -> int:
        is_whole = re.fullmatch(r"\s*-?[0-9]{1,12}\s*", str(value))
        if isinstance(value, bool) or not is_whole or not least <= int(value) <= most:
            raise ValueError(
                f"must be a whole number from {least:,} to {most:,}, not {value!r:.100}"
            )
        return int(value)

    return check


def _check_sharing(value: Any) -> str:
    if value not in SHARING:
        raise ValueError(f"must be one of {', '.join(SHARING)}, not {value!r}")
    return str(value)


def _check_flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"must be true or false, not {value!r}")
    return value


def _check_factor(value: Any) -> float:
    return check_lr_factor(value, "the factor")


def option(
    default: Any,
    help: str,
    check: Callable[[Any], Any] = _check_flag,
    metavar: str | None = None,
    default_text: str | None = None,
) -> Any:
    """A field of :class:`AttentionConfig`."""
    if default is not None and metavar is not None:
        default_text = str(default)
    shown = f" (default: {default_text})" if default_text else ""
    return field(
        default=default, metadata={"help": help + shown, "check": check, "metavar": metavar}
    )


def _mapping_of(attention: str) -> Any:
    help = f"mapping of {attention} attention, instead of --attn-mapping"
    return option(None, help, parse_mapping_option, "SPEC")


def _heads_of(attention: str) -> Any:
    stock = "--encoder" if attention == ENCODER_SELF else "--decoder"
    help = (
        f"heads of {attention} attention in each layer, bottom layer first, such as 3,0,8, or "
        f"one number for every layer; a head keeps the width that {stock}-attention-heads gives it"
    )
    every_layer = f"{stock}-attention-heads in every layer"
    return option(None, help, parse_head_counts, "N,N,...", every_layer)


@dataclass
class AttentionConfig:
    """The options of a model of this package, beside those of fairseq's."""

    attn_mapping: str | list[str] = option(
        "entmax",
        "mapping of all attentions from scores to weights: softmax, sparsemax, entmax15, entmax "
        "(alpha learned per head) or entmax:alpha=1.33 (fixed); fusedmax, oscarmax, sqpnormmax, "
        "fusedmax:tv=0.3, entmax:tv=learned, entmax:oscar=learned or sqpnormmax:p=learned; or a "
        "list, bottom layer first, such as sparsemax*5,softmax; 'sparsemax|softmax*7' gives each "
        "of 8 heads its own, and '(sparsemax|softmax*7)*3,softmax*3' the heads of three layers",
        parse_mapping_option,
        "SPEC",
    )
    encoder_self_attn_mapping: str | list[str] | None = _mapping_of(ENCODER_SELF)
    decoder_self_attn_mapping: str | list[str] | None = _mapping_of(DECODER_SELF)
    cross_attn_mapping: str | list[str] | None = _mapping_of(CROSS)
    alpha_init: str | float = option(
        NORMAL,
        "start of a learned alpha = 1 + sigmoid(a): a drawn from N(0, 1), or a number strictly "
        "between 1 and 2 for every head; a mapping's own, entmax:init=1.5, comes first",
        lambda value: check_alpha_init(value, "the start of alpha"),
        "normal|NUMBER",
    )
    tv_init: float = option(
        TV_INIT,
        "start of a learned strength of total variation, entmax:tv=learned, above 0; a mapping's "
        "own, entmax:tv=learned:tv_init=0.3, comes first",
        lambda value: check_strength_init(value, "the start of tv"),
        "NUMBER",
    )
    oscar_init: float = option(
        OSCAR_INIT,
        "start of a learned strength of OSCAR's clustering, entmax:oscar=learned, above 0",
        lambda value: check_strength_init(value, "the start of oscar"),
        "NUMBER",
    )
    p_init: float = option(
        P_INIT,
        "start of a learned p of sqpnormmax:p=learned, strictly between 1 and 2",
        lambda value: check_p_init(value, "the start of p"),
        "NUMBER",
    )
    share_alpha: str = option(
        SHARE_NONE,
        "one learned alpha, or whatever else a mapping learns, such as tv, oscar and p, per head "
        "(none), per layer and attention (layer), per attention (attention), or one in all (model); "
        "a mapping's own, entmax:share=layer, comes first",
        _check_sharing,
        "|".join(SHARING),
    )
    alpha_lr_factor: float = option(
        NO_FACTOR,
        "how much faster than other parameters alpha, or whatever else a mapping learns, changes, "
        "from 0.001 to 10000; a mapping's own, entmax:lr_factor=10, comes first",
        _check_factor,
        "NUMBER",
    )
    alpha_warmup_updates: int = option(
        0,
        "make attention sparse by degrees: every mapping begins as softmax and is itself after N "
        "updates, alpha rising from 1 to its value, and a strength of structure from 0; a mapping's "
        "own, sparsemax:warmup=5000, comes first",
        lambda value: check_warmup(value, "the number"),
        "N",
    )
    alpha_log_interval: int = option(
        10,
        "write the values that the heads learn, such as every alpha, to a file of their name, such "
        "as alpha.jsonl, in the save directory each N updates; 0 for never",
        whole_number(0, MOST_UPDATES),
        "N",
    )
    encoder_self_attn_heads: str | list[int] | None = _heads_of(ENCODER_SELF)
    decoder_self_attn_heads: str | list[int] | None = _heads_of(DECODER_SELF)
    cross_attn_heads: str | list[int] | None = _heads_of(CROSS)
    head_gates: str | list[str] | None = option(
        None,
        f"attentions whose heads get a hard-concrete gate: any of {', '.join(ATTENTIONS)}; train "
        "them with --criterion label_smoothed_cross_entropy_with_head_l0 or another …_with_head_l0",
        parse_attentions,
        "ATTENTION,...",
        "none",
    )
    gate_temperature: float = option(
        gates.TEMPERATURE,
        "temperature beta of the gates, from 0.01 and below 1",
        gates.check_temperature,
        "NUMBER",
    )
    gate_stretch: str | float | list[float] = option(
        ",".join(map(str, gates.STRETCH)),
        "stretch limits gamma below 0 and zeta above 1 of the gates, written with an equals sign, "
        "or one number e for -e and 1 + e",
        gates.check_stretch,
        "GAMMA,ZETA",
    )
    gate_init: float = option(
        gates.INIT,
        "start of log a of every gate; from 2.4 on, with the other defaults, a gate starts as 1 "
        "in evaluation; from -10 to 10",
        gates.check_init,
        "NUMBER",
    )
    gate_lr_factor: float = option(
        gates.LR_FACTOR,
        "how much faster than other parameters log a learns, from 0.001 to 10000",
        _check_factor,
        "NUMBER",
    )
    output_alpha: float | None = option(
        None,
        "alpha of the entmax that makes probabilities of words from the output's scores, in "
        "generation and evaluation: from 1 (softmax) to 2 (sparsemax)",
        lambda value: check_alpha(value, "alpha of the output"),
        "NUMBER",
        "--loss-alpha with --criterion entmax_loss, otherwise 1",
    )
    loss_alpha_warmup_updates: int = option(
        0,
        "let alpha of --criterion entmax_loss, and of the output with it, rise from 1 (cross-entropy "
        "and softmax) to its value over N updates",
        lambda value: check_warmup(value, "the number"),
        "N",
    )
    freeze_decoder: bool = option(
        False,
        "keep every parameter of the decoder as it is, shared embeddings included; for pruning "
        "the encoder of a trained model",
    )

    @classmethod
    def of(cls, args: Any) -> AttentionConfig:
        """The options among others, those that are not given with their defaults."""
        values = {option: getattr(args, option, None) for option in defaults_of(cls)}
        return cls(**{option: value for option, value in values.items() if value is not None})

    def checked(self, option: str) -> Any:
        """What the value of an option means; None where it has none."""
        value = getattr(self, option)
        if value is None:
            return None
        try:
            return self.__dataclass_fields__[option].metadata["check"](value)
        except ValueError as error:
            raise ValueError(f"{option_name(option)}: {error}") from None


def defaults_of(config: type[AttentionConfig]) -> dict[str, Any]:
    """The options of a model, with their defaults."""
    return {entry.name: entry.default for entry in fields(config)}


DEFAULTS = defaults_of(AttentionConfig)


def option_name(option: str) -> str:
    """``alpha_init`` to ``--alpha-init``."""
    return "--" + option.replace("_", "-")


def heads_options(heads: Dictionary[str, Sequence[int]]) -> dict[str, str]:
    """The options for so many heads: of each attention, in each layer, bottom layer first."""
    return {HEADS_OPTIONS[name]: ",".join(map(str, counts)) for name, counts in heads.items()}


def mapping_options(specs: Dictionary[str, Sequence[LayerSpec]]) -> dict[str, str]:
    """The options for such mappings: of each attention, in each layer, bottom layer first."""
    return {MAPPING_OPTIONS[name]: layers_text(layers) for name, layers in specs.items()}


def as_arguments(options: Dictionary[str, str]) -> str:
    """Options and their values as arguments of ``fairseq-train``, as a shell reads them."""
    return shlex.join(
        word for option, value in options.items() for word in (option_name(option), value)
    )


def add_arguments(parser: Any, config: type[AttentionConfig] = AttentionConfig) -> None:
    """Add the options to an argparse parser or group. Defaults come from the architecture."""
    for entry in fields(config):
        about = entry.metadata
        kind: dict[str, Any] = {"action": "store_true"}
        if about["metavar"] is not None:
            kind = {"metavar": about["metavar"], "type": _argument(about["check"])}
        parser.add_argument(option_name(entry.name), help=about["help"], **kind)


def set_defaults(args: Any, config: type[AttentionConfig] = AttentionConfig) -> None:
    """Fill in what was not given, as a fairseq architecture function does."""
    for option, default in defaults_of(config).items():
        if getattr(args, option, None) is None:
            setattr(args, option, default)


def refuse_unknown(
    names: Iterable[Any], known: Collection[str], config: type[AttentionConfig] = AttentionConfig
) -> None:
    """Refuse names in a YAML file that look like options of this package and are none.

    fairseq ignores names that it does not know, and the experiment would be another one.
    """
    own = defaults_of(config)
    for name in map(str, names):
        is_like = any(word in name for word in _OWN_WORDS) or get_close_matches(name, own, 1, 0.8)
        if name not in known and is_like:
            raise ValueError(f"model.{name} is no option of this model; allowed: {', '.join(own)}")


def _argument(check: Callable[[Any], Any]) -> Callable[[str], str]:
    """An argparse type that keeps the text and turns a ValueError into the parser's error."""

    def checked(text: str) -> str:
        try:
            check(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return text

    return checked
