"""The heads of a model's attentions: their number, mappings and initial values."""

from collections.abc import Mapping as Dictionary
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from fairseq_entmax import command_errors
from fairseq_entmax.attention import Heads, attention_modules, every_attention, give_heads
from fairseq_entmax.attentions import ATTENTIONS, CROSS, DECODER_SELF, ENCODER_SELF, SIDES
from fairseq_entmax.mappings import Mapping, base, strengths
from fairseq_entmax.mappings.entmax import NORMAL, check_alpha_init
from fairseq_entmax.mappings.factor import NO_FACTOR
from fairseq_entmax.mappings.layers import LayerSpec, LayersSpec, PerHeadSpec, layers_text
from fairseq_entmax.mappings.rise import check_warmup
from fairseq_entmax.models import values
from fairseq_entmax.models.feature import Feature, ModelOptions, option, option_name

# From attention to option, such as encoder_self_attn_mapping
MAPPING_OPTIONS = {name: f"{name.replace('-', '_')}_attn_mapping" for name in ATTENTIONS}
HEADS_OPTIONS = {name: f"{name.replace('-', '_')}_attn_heads" for name in ATTENTIONS}
# Parameters of a mapping's text, and the options that give their defaults
_DEFAULTS_OF = {
    "init": "alpha_init",
    "share": "share_alpha",
    "lr_factor": "alpha_lr_factor",
    "warmup": "alpha_warmup_updates",
    **{name: name for name in ("tv_init", "oscar_init", "p_init")},
}


def heads_options(heads: Dictionary[str, Sequence[int]]) -> dict[str, str]:
    """The options for these numbers of heads, by attention, bottom layer first."""
    return {HEADS_OPTIONS[name]: ",".join(map(str, counts)) for name, counts in heads.items()}


def mapping_options(specs: Dictionary[str, Sequence[LayerSpec]]) -> dict[str, str]:
    """The options for these mappings, by attention, bottom layer first."""
    return {MAPPING_OPTIONS[name]: layers_text(layers) for name, layers in specs.items()}


def _mapping_of(attention: str) -> Any:
    help = f"mapping of {attention} attention, instead of --attn-mapping"
    return option(None, help, values.parse_layers_option, "SPEC")


def _heads_of(attention: str) -> Any:
    stock = "--encoder" if attention == ENCODER_SELF else "--decoder"
    help = (
        f"number of heads of {attention} attention in each layer, bottom layer first, such as 3,0,8, or "
        f"one number for all layers; a head keeps the width that {stock}-attention-heads gives it"
    )
    every_layer = f"{stock}-attention-heads in every layer"
    return option(None, help, values.parse_head_counts, "N,N,...", every_layer)


@dataclass
class AttentionHeads(Feature):
    """The heads of every attention in every layer; :class:`ModelOptions` explains the results."""

    name = "attention"
    attn_mapping: LayersSpec = option(
        "entmax",
        "mapping of all attentions from scores to weights: softmax, sparsemax, entmax15, entmax "
        "(alpha learned per head) or entmax:alpha=1.33 (fixed); fusedmax, oscarmax, sqpnormmax, "
        "fusedmax:tv=0.3, entmax:tv=learned, entmax:oscar=learned or sqpnormmax:p=learned; or a "
        "list, bottom layer first, such as sparsemax*5,softmax; 'sparsemax|softmax*7' gives each "
        "of 8 heads its own, and '(sparsemax|softmax*7)*3,softmax*3' the heads of three layers",
        values.parse_layers_option,
        "SPEC",
    )
    encoder_self_attn_mapping: LayersSpec | None = _mapping_of(ENCODER_SELF)
    decoder_self_attn_mapping: LayersSpec | None = _mapping_of(DECODER_SELF)
    cross_attn_mapping: LayersSpec | None = _mapping_of(CROSS)
    alpha_init: str | float = option(
        NORMAL,
        "initial value of a learned alpha = 1 + sigmoid(a): with a drawn from N(0, 1), or a number strictly "
        "between 1 and 2 for every head; entmax:init=1.5 in a mapping's text takes precedence; for other "
        "learned numbers: --tv-init, --oscar-init, --p-init, and temperature_init in a mapping's text",
        lambda value: check_alpha_init(value, "the initial alpha"),
        "normal|NUMBER",
    )
    tv_init: float = option(
        strengths.TV_INIT,
        "initial value of a learned strength of total variation, entmax:tv=learned, above 0; "
        "entmax:tv=learned:tv_init=0.3 in a mapping's text takes precedence",
        lambda value: strengths.check_strength_init(value, "the initial tv"),
        "NUMBER",
    )
    oscar_init: float = option(
        strengths.OSCAR_INIT,
        "initial value of a learned strength of OSCAR's clustering, entmax:oscar=learned, above 0",
        lambda value: strengths.check_strength_init(value, "the initial oscar"),
        "NUMBER",
    )
    p_init: float = option(
        strengths.P_INIT,
        "initial value of a learned p of sqpnormmax:p=learned, strictly between 1 and 2",
        lambda value: strengths.check_p_init(value, "the initial p"),
        "NUMBER",
    )
    share_alpha: str = option(
        base.SHARE_NONE,
        "share alpha and each other number that a mapping learns (tv, oscar, p, temperature): one per head "
        "(none), per layer and attention (layer), per attention (attention), or one for the whole model "
        "(model); entmax:share=layer in a mapping's text takes precedence",
        lambda value: base.check_share(value, "the sharing"),
        "|".join(base.SHARING),
    )
    alpha_lr_factor: float = option(
        NO_FACTOR,
        "learning rate factor of alpha and every other number that a mapping learns, from 0.001 to 10000; "
        "entmax:lr_factor=10 in a mapping's text takes precedence",
        values.check_factor,
        "NUMBER",
    )
    alpha_warmup_updates: int = option(
        0,
        "make attention sparse by degrees: each mapping begins as softmax and reaches its final form after N "
        "updates; alpha rises from 1 to its value, a strength from 0, sqpnormmax is mixed with less and less "
        "softmax, and temperatures do not change; sparsemax:warmup=5000 in a mapping's text takes precedence",
        lambda value: check_warmup(value, "the number"),
        "N",
    )
    encoder_self_attn_heads: list[int] | None = _heads_of(ENCODER_SELF)
    decoder_self_attn_heads: list[int] | None = _heads_of(DECODER_SELF)
    cross_attn_heads: list[int] | None = _heads_of(CROSS)
    specs: dict[str, list[LayerSpec]] = field(init=False, default_factory=dict)
    kept: dict[str, list[LayerSpec]] = field(init=False, default_factory=dict)  # of specs
    heads: dict[str, list[int]] = field(init=False, default_factory=dict)
    places: dict[str, int] = field(init=False, default_factory=dict)
    mapping_defaults: dict[str, Any] = field(init=False, default_factory=dict)

    def fit(self, options: ModelOptions, args: Any) -> None:
        for attention in ATTENTIONS:
            if attention in options.attentions:
                self.places[attention] = int(getattr(args, f"{SIDES[attention]}_attention_heads"))
                self.specs[attention] = self._mappings(args, attention)
                self.heads[attention] = self._heads(args, attention)
                if _layers(args, attention)[1]:
                    self.kept[attention] = self.specs[attention]
                continue
            for foreign in (MAPPING_OPTIONS[attention], HEADS_OPTIONS[attention]):
                if getattr(self, foreign) is not None:
                    raise ValueError(
                        f"{option_name(foreign)} got {getattr(args, foreign)!r}: this model has no "
                        f"{attention} attention, only {', '.join(options.attentions)}; leave it out"
                    )
        for parameter, option_of in _DEFAULTS_OF.items():
            self.mapping_defaults[parameter] = getattr(self, option_of)
        for attention, heads in self.heads.items():
            for layer in range(len(heads)):
                self.check_per_head(attention, layer)

    def check_per_head(self, attention: str, layer: int) -> None:
        """Raise ValueError if a layer's per-head mapping does not fit its number of heads."""
        spec, number = self.specs[attention][layer], self.heads[attention][layer]
        if isinstance(spec, PerHeadSpec) and number:
            try:
                # A private generator, so that a check leaves torch's random numbers alone
                spec.build(number, torch.Generator(), self.mapping_defaults)
            except ValueError as error:
                where = f"{option_name(self._mapping_option(attention))} ({attention} attention"
                raise ValueError(f"{where}, layer {layer}): {error}") from None

    def attach(self, model: Any, args: Any) -> None:
        generator = torch.Generator().manual_seed(model.head_seed())
        layers = list(every_attention(model))
        places = [(attention, layer) for attention, layer, *_ in layers]
        if len(set(places)) < len(places):
            raise ValueError(
                f"{type(model).__name__} has several encoders or decoders, but heads are identified only "
                f"by attention and layer: build it with at most one encoder and one decoder"
            )
        found = {attention for attention, _ in places}
        wrong = found ^ {attention for attention, heads in self.heads.items() if heads}
        if getattr(args, "no_cross_attention", False):
            wrong.discard(CROSS)
        if wrong:
            raise ValueError(
                f"{type(model).__name__} has the attentions {', '.join(sorted(found)) or 'none'}, but its class's "
                f"attribute 'attentions' says {', '.join(self.heads)}: list there those that it has"
            )
        for attention, layer, module, name in layers:
            number, mapping = self.heads[attention][layer], None
            if number:
                spec = self.specs[attention][layer]
                mapping = spec.build(number, generator, self.mapping_defaults)
            give_heads(module, name, Heads(number, mapping))
        with command_errors.stopping_command():
            _share_parameters(model)

    def recorded_options(self) -> dict[str, Any]:
        # fairseq forgets which layers it kept once it has loaded their weights
        return {**heads_options(self.heads), **mapping_options(self.kept)}

    def _mapping_option(self, attention: str) -> str:
        option = MAPPING_OPTIONS[attention]
        return "attn_mapping" if getattr(self, option) is None else option

    def _mappings(self, args: Any, attention: str) -> list[LayerSpec]:
        option = self._mapping_option(attention)
        (layers, remaining), named = _layers(args, attention), getattr(self, option)
        if remaining and named.is_list:
            named = replace(named, layers=_of_remaining(named.layers, layers, remaining))
        try:
            mappings: list[LayerSpec] = named.of_layers(len(remaining) if remaining else layers)
            return mappings
        except ValueError as error:
            raise ValueError(f"{option_name(option)} ({attention} attention): {error}") from None

    def _heads(self, args: Any, attention: str) -> list[int]:
        option = HEADS_OPTIONS[attention]
        layers, remaining = _layers(args, attention)
        most, counts = self.places[attention], getattr(self, option)
        number = len(remaining) if remaining else layers
        if counts is None:
            return [most] * number
        counts = counts * number if len(counts) == 1 else _of_remaining(counts, layers, remaining)
        if len(counts) != number:
            raise ValueError(
                f"{option_name(option)}: {len(counts)} numbers of heads for {number} layers, in "
                f"{getattr(args, option)!r}: give one for each layer, bottom layer first"
            )
        if max(counts, default=0) > most:
            raise ValueError(
                f"{option_name(option)}: a layer has room for at most {most} heads, as "
                f"--{SIDES[attention]}-attention-heads says, not {max(counts)}"
            )
        return counts


def _layers(args: Any, attention: str) -> tuple[int, list[int]]:
    """The number of layers, and the layers kept by ``--encoder-`` or ``--decoder-layers-to-keep``.

    When fairseq builds such a model, it sets the number to that of the remaining layers.
    """
    side = SIDES[attention]
    remaining = getattr(args, f"{side}_layers_to_keep", None)
    remaining = remaining.split(",") if isinstance(remaining, str) else remaining or []
    return int(getattr(args, f"{side}_layers")), [int(number) for number in remaining]


def _of_remaining(entries: list[Any], layers: int, remaining: list[int]) -> list[Any]:
    """From a list for all layers, the entries of the remaining ones; other lists are unchanged."""
    if not remaining or len(entries) == len(remaining):
        return entries
    if len(entries) != layers and not (layers == len(remaining) and len(entries) > max(remaining)):
        return entries
    return [entries[layer] for layer in remaining]


def _share_parameters(model: Any) -> None:
    """Make mappings share parameters across an attention or the model, as their ``share`` says."""
    shared: dict[tuple[type[Mapping], str, str], nn.Parameter] = {}
    factors: dict[tuple[type[Mapping], str], float] = {}
    for attention, _, module in attention_modules(model):
        mapping = module.mapping
        if mapping is None or mapping.share not in (base.SHARE_ATTENTION, base.SHARE_MODEL):
            continue
        group = attention if mapping.share == base.SHARE_ATTENTION else base.SHARE_MODEL
        if mapping.learned:
            factor = factors.setdefault((type(mapping), group), mapping.lr_factor)
            if factor != mapping.lr_factor:
                raise ValueError(
                    f"{type(mapping).__name__} shares what it learns with the whole {group}, but "
                    f"has lr_factor={factor:g} in one layer and {mapping.lr_factor:g} in another: "
                    f"give all layers the same factor"
                )
        for name, parameter in list(mapping.named_parameters()):
            first = shared.setdefault((type(mapping), group, name), parameter)
            owner, _, leaf = name.rpartition(".")
            setattr(mapping.get_submodule(owner), leaf, first)
