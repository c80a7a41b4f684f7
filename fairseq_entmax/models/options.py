"""What the options of a model amount to together, checked against each other.

The options themselves are in :mod:`fairseq_entmax.models.config`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fairseq_entmax.attention import HardConcreteGate, Heads
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF, SIDES
from fairseq_entmax.criterions.sparse_output import (
    NAME,
    SOFTMAX,
    EntmaxLossConfig,
    EntmaxLossWithHeadL0,
)
from fairseq_entmax.mappings.functional import check_alpha
from fairseq_entmax.mappings.layers import (
    HeadsSpec,
    LayerSpec,
    layers_text,
    mappings_for_layers,
    names_layers,
)
from fairseq_entmax.models.classifier_config import (
    ClassifierConfig,
    PoolingOptions,
    read_pooling,
)
from fairseq_entmax.models.config import (
    HEADS_OPTIONS,
    MAPPING_OPTIONS,
    AttentionConfig,
    mapping_text,
    option_name,
)
from fairseq_entmax.models.copy_config import CopyConfig, CopyOptions, read_copy


@dataclass(frozen=True)
class AttentionOptions:
    """The checked options of one model: of each attention, of each layer from the bottom."""

    specs: dict[str, list[LayerSpec]]
    heads: dict[str, list[int]]
    places: dict[str, int]  # how many heads the width of a layer has place for
    gated: tuple[str, ...]
    gate: dict[str, Any]  # arguments of their HardConcreteGate
    freeze_decoder: bool
    mapping_defaults: dict[str, str]  # what a mapping's text is taken to say where it does not
    log_interval: int  # updates between two lines of the record of head values; 0 for none
    copy: CopyOptions | None = None
    output_alpha: float = SOFTMAX
    output_warmup: int = 0  # updates in which it rises from 1
    pooling: PoolingOptions | None = None

    def protected(self, attention: str, layer: int) -> tuple[int, ...]:
        """The heads of a layer that no gate may close."""
        copy = self.copy
        if copy is None or (attention, layer) != (CROSS, copy.layer):
            return ()
        return copy.heads

    def build_heads(
        self, attention: str, layer: int, generator: torch.Generator | None = None
    ) -> Heads:
        """Make what the heads of one attention in one layer need; ``generator`` draws their start."""
        number = self.heads[attention][layer]
        if number == 0:
            return Heads(0, None)
        gate = self.build_gate(attention, layer) if attention in self.gated else None
        spec = self.specs[attention][layer]
        return Heads(number, spec.build(number, generator, self.mapping_defaults), gate)

    def build_gate(self, attention: str, layer: int) -> HardConcreteGate:
        """Make the gates of the heads of one attention in one layer, which has heads."""
        number, protected = self.heads[attention][layer], self.protected(attention, layer)
        return HardConcreteGate(number, **self.gate, protected=protected)


def read_options(
    args: Any,
    attentions: Sequence[str] = ATTENTIONS,
    config_class: type[AttentionConfig] = AttentionConfig,
) -> AttentionOptions:
    """Check the options of a model against each other."""
    config = config_class.of(args)
    for names in (MAPPING_OPTIONS, HEADS_OPTIONS):
        for attention, option in names.items():
            if attention not in attentions and getattr(config, option) is not None:
                raise ValueError(
                    f"{option_name(option)} got {getattr(config, option)!r}: this model has no "
                    f"{attention} attention, only {', '.join(attentions)}; leave it out"
                )
    freeze_decoder = config.checked("freeze_decoder")
    if freeze_decoder and CROSS not in attentions:
        raise ValueError(
            "--freeze-decoder is for models with an encoder and a decoder, which this is not: "
            "leave it out"
        )
    specs = {attention: _mappings(config, args, attention) for attention in attentions}
    heads = {attention: _heads(config, args, attention) for attention in attentions}
    gated = config.checked("head_gates") or ()
    _check_gated(gated, heads, args, freeze_decoder)
    defaults = {
        "init": str(config.checked("alpha_init")),
        "share": config.checked("share_alpha"),
        "lr_factor": str(config.checked("alpha_lr_factor")),
        "warmup": str(config.checked("alpha_warmup_updates")),
        **{name: str(config.checked(name)) for name in ("tv_init", "oscar_init", "p_init")},
    }
    copy = read_copy(config, args, specs, heads) if isinstance(config, CopyConfig) else None
    pooling = None
    if isinstance(config, ClassifierConfig):
        pooling = read_pooling(config, args, specs[ENCODER_SELF][-1], defaults)
    options = AttentionOptions(
        specs=specs,
        heads=heads,
        places={attention: _places(args, attention) for attention in attentions},
        gated=gated,
        gate={
            name: config.checked(f"gate_{name}")
            for name in ("temperature", "stretch", "init", "lr_factor")
        },
        freeze_decoder=freeze_decoder,
        mapping_defaults=defaults,
        log_interval=config.checked("alpha_log_interval"),
        copy=copy,
        output_alpha=_output_alpha(config, args, attentions),
        output_warmup=config.checked("loss_alpha_warmup_updates"),
        pooling=pooling,
    )
    for attention, layers in specs.items():
        for layer, (spec, number) in enumerate(zip(layers, heads[attention], strict=True)):
            if isinstance(spec, HeadsSpec) and number:
                option = option_name(_mapping_option(config, attention))
                try:
                    # A private generator: a check leaves torch's own random numbers as they are
                    spec.build(number, torch.Generator(), options.mapping_defaults)
                except ValueError as error:
                    where = f"{option} ({attention} attention, layer {layer})"
                    raise ValueError(f"{where}: {error}") from None
    return options


def _output_alpha(config: AttentionConfig, args: Any, attentions: Sequence[str]) -> float:
    """α of the mapping from scores of words to probabilities: ``--output-alpha``, or of the loss."""
    alpha, option = config.checked("output_alpha"), "--output-alpha"
    is_of_loss = getattr(args, "criterion", None) in (NAME, EntmaxLossWithHeadL0.name)
    if alpha is None and is_of_loss:
        alpha = getattr(args, "loss_alpha", None)
        alpha = EntmaxLossConfig.loss_alpha if alpha is None else check_alpha(alpha, "--loss-alpha")
        option = f"--criterion {args.criterion}"
    if not is_of_loss and alpha in (None, SOFTMAX):
        return SOFTMAX
    reason = ""
    if DECODER_SELF not in attentions:
        reason = "this model writes no words"
    elif isinstance(config, CopyConfig):
        reason = "the output of a model that copies is a mixture, trained by copy_cross_entropy"
    elif getattr(args, "adaptive_softmax_cutoff", None):
        reason = "--adaptive-softmax-cutoff has no one score for each word"
    if reason:
        raise ValueError(f"{option} with alpha {alpha:g}: {reason}: leave one out")
    return float(alpha)


def _mapping_option(config: AttentionConfig, attention: str) -> str:
    """The option that names the mapping of an attention."""
    own = MAPPING_OPTIONS[attention]
    return "attn_mapping" if getattr(config, own) is None else own


def _mappings(config: AttentionConfig, args: Any, attention: str) -> list[LayerSpec]:
    """The mapping of each layer of an attention."""
    option = _mapping_option(config, attention)
    layers, kept = _layers(args, attention)
    try:
        text = mapping_text(getattr(config, option))
        if kept and names_layers(text):
            text = layers_text(_of_kept(config.checked(option), layers, kept))
        return mappings_for_layers(text, len(kept) if kept else layers)
    except ValueError as error:
        message = str(error).removeprefix(f"{option_name(option)}: ")
        raise ValueError(f"{option_name(option)} ({attention} attention): {message}") from None


def _heads(config: AttentionConfig, args: Any, attention: str) -> list[int]:
    """The number of heads of each layer of an attention."""
    option = HEADS_OPTIONS[attention]
    layers, kept = _layers(args, attention)
    most = _places(args, attention)
    counts = config.checked(option)
    number = len(kept) if kept else layers
    if counts is None:
        return [most] * number
    counts = counts * number if len(counts) == 1 else _of_kept(counts, layers, kept)
    if len(counts) != number:
        raise ValueError(
            f"{option_name(option)}: {len(counts)} numbers of heads for {number} layers, in "
            f"{getattr(config, option)!r}: give one for each layer, bottom layer first"
        )
    if max(counts, default=0) > most:
        raise ValueError(
            f"{option_name(option)}: a layer has place for {most} heads at most, as "
            f"--{SIDES[attention]}-attention-heads says, not {max(counts)}"
        )
    return counts


def _places(args: Any, attention: str) -> int:
    return int(getattr(args, f"{SIDES[attention]}_attention_heads"))


def _layers(args: Any, attention: str) -> tuple[int, list[int]]:
    """The number of layers, and those that ``--encoder-layers-to-keep`` and its like keep of them.

    fairseq sets the number to that of the layers kept, once it builds such a model.
    """
    side = SIDES[attention]
    kept = getattr(args, f"{side}_layers_to_keep", None)
    kept = kept.split(",") if isinstance(kept, str) else kept or []
    return int(getattr(args, f"{side}_layers")), [int(number) for number in kept]


def _of_kept(entries: list[Any], layers: int, kept: list[int]) -> list[Any]:
    """Of a list for all layers, that for the layers kept; a list for these stays."""
    if not kept or len(entries) == len(kept):
        return entries
    if len(entries) != layers and not (layers == len(kept) and len(entries) > max(kept)):
        return entries
    return [entries[layer] for layer in kept]


def _check_gated(
    gated: Sequence[str], heads: dict[str, list[int]], args: Any, freeze_decoder: bool
) -> None:
    for attention in gated:
        side = SIDES[attention]
        if attention not in heads:
            raise ValueError(
                f"--head-gates: this model has no {attention} attention, only {', '.join(heads)}"
            )
        if not sum(heads[attention]):
            raise ValueError(f"--head-gates: {attention} attention has no heads to put gates on")
        if attention == CROSS and getattr(args, "no_cross_attention", False):
            raise ValueError("--head-gates: --no-cross-attention leaves no cross attention to gate")
        layerdrop = getattr(args, f"{side}_layerdrop", 0)
        if layerdrop:
            raise ValueError(
                f"--head-gates: --{side}-layerdrop {layerdrop} leaves layers, and so gates, "
                f"out of updates: leave it out while heads are pruned"
            )
        if freeze_decoder and side == "decoder":
            raise ValueError(
                f"--head-gates {','.join(gated)}: --freeze-decoder keeps the decoder as it is, so "
                f"only encoder-self can have gates"
            )


def check_stock_options(args: Any) -> None:
    """Refuse values of fairseq's own options that leave no mapping."""
    for side in ("encoder", "decoder"):
        if getattr(args, f"{side}_xformers_att_config", None) is not None:
            raise ValueError(
                f"--{side}-xformers-att-config replaces the attention as a whole and leaves no "
                f"place for a mapping: leave it out, or use fairseq's own transformer"
            )


def seed_of_its_own() -> int:
    """A seed that follows from torch's but leaves torch's own sequence as it is.

    So models of all mappings start from the same weights with the same seed.
    """
    with torch.random.fork_rng(devices=[]):
        return int(torch.randint(2**62, ()))
