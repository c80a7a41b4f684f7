"""The model ``entmax_transformer_lm`` and its architectures.

It is fairseq's ``transformer_lm``, a decoder alone, with another mapping from attention scores to
weights. Each architecture of fairseq's ``transformer_lm`` has its counterpart:
``transformer_lm_gpt`` is ``entmax_transformer_lm_gpt``.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    register_model,
    register_model_architecture,
    transformer_lm,
)
from fairseq.models.transformer import TransformerConfig, TransformerDecoder
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn

from fairseq_entmax.attention import mark_future_mask
from fairseq_entmax.attention.scripting import Scriptable
from fairseq_entmax.attentions import DECODER_SELF
from fairseq_entmax.models.adaptive import AdaptiveModel, architecture
from fairseq_entmax.models.config import add_arguments
from fairseq_entmax.models.entmax_transformer import wrap_layers
from fairseq_entmax.models.feature import ModelOptions
from fairseq_entmax.models.scripting import ScriptableLanguageModel

# Options of the task and of commands that fairseq's model takes too
BORROWED = {
    "task": ("add_bos_token", "tokens_per_sample", "max_target_positions"),
    "common": ("tpu",),
}


class EntmaxLanguageModelDecoder(Scriptable, TransformerDecoder):
    """fairseq's decoder, whose layers are wrapped by :func:`wrap_layers`, once they have heads."""

    scriptable_class = TransformerDecoder

    def build_decoder_layer(self, args: Any, no_encoder_attn: bool = False) -> nn.Module:
        return TransformerDecoderLayerBase(TransformerConfig.from_namespace(args), no_encoder_attn)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor:
        return mark_future_mask(super().buffered_future_mask(tensor))


class _LanguageModel(TransformerLanguageModel):
    """fairseq's ``transformer_lm``, which names its decoder in the code, with the decoder above."""

    @classmethod
    def build_model(cls, args: Any, task: Any) -> Any:
        stock = transformer_lm.TransformerDecoder
        transformer_lm.TransformerDecoder = EntmaxLanguageModelDecoder
        try:
            return super().build_model(args, task)
        finally:
            transformer_lm.TransformerDecoder = stock


@register_model("entmax_transformer_lm")
class EntmaxTransformerLanguageModel(AdaptiveModel, _LanguageModel):
    """fairseq's ``transformer_lm`` with alpha-entmax attention, for the task ``language_modeling``.

    Takes every option of fairseq's ``transformer_lm``, and those of
    :mod:`fairseq_entmax.models.config` that fit a decoder alone. A checkpoint of a stock
    ``transformer_lm`` can be loaded: what it lacks starts as in a new model, and is logged.
    """

    scriptable_class = ScriptableLanguageModel
    attentions = (DECODER_SELF,)
    decoder: Any

    @classmethod
    def add_args(cls, parser: Any) -> None:
        # Without defaults, which come from the architecture
        gen_parser_from_dataclass(parser, TransformerLanguageModelConfig(), delete_default=True)
        add_arguments(parser, cls.features)

    @classmethod
    def _namespace(cls, cfg: Any) -> Namespace:
        """Options of the ``model`` section, with those that the model shares with other sections."""
        root = cfg._get_root()
        for section, names in BORROWED.items():
            of_section = root.get(section) or {}
            borrowed = {name: of_section.get(name) for name in names if cfg.get(name) is None}
            with open_dict(cfg):  # which is what a checkpoint says of the model
                cfg.update(borrowed)
        return super()._namespace(cfg)

    @classmethod
    def attention_options_of(cls, args: Any) -> ModelOptions:
        if getattr(args, "base_layers", 0):
            raise ValueError(
                f"--base-layers {args.base_layers}: this model has no layers without attention: "
                f"leave it out, or use fairseq's own transformer_lm"
            )
        return super().attention_options_of(args)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> Any:
        model = super().build_model(args, task)
        wrap_layers(model.decoder, model.decoder.cfg)
        return model

    def scriptable_form(self) -> nn.Module:
        embedding = self.decoder.embed_tokens
        if self.decoder.adaptive_softmax is not None or not isinstance(embedding, nn.Embedding):
            raise ValueError(
                "a language model with --adaptive-input, --adaptive-softmax-cutoff or "
                "--character-embeddings cannot be scripted or exported, as fairseq's own cannot: "
                "one with an embedding of each word can"
            )
        return super().scriptable_form()


def stock_defaults() -> dict[str, Any]:
    """The options of fairseq's ``transformer_lm`` with their defaults, as its dataclass has them."""
    defaults = {}
    for entry in fields(TransformerLanguageModelConfig):
        default = entry.default if entry.default is not MISSING else None
        is_borrowed = isinstance(default, str) and default.startswith("${")
        if entry.name != "_name" and not is_borrowed:
            defaults[entry.name] = default
    return defaults


def _plainly(fill_in: Callable[[Any], None]) -> Callable[[Any], None]:
    """fairseq's function of an architecture, and then the defaults of its dataclass."""

    def defaults(args: Any) -> None:
        # Some of fairseq's functions take what a configuration has not for a value, None
        settings = args if isinstance(args, Namespace) else OmegaConf.to_container(args)
        settings = vars(settings) if isinstance(settings, Namespace) else settings
        plain = Namespace(**{name: value for name, value in settings.items() if value is not None})
        fill_in(plain)
        filled = {name: value for name, value in vars(plain).items() if value is not None}
        for name, value in {**vars(plain), **stock_defaults(), **filled}.items():
            setattr(args, name, value)

    return defaults


for _name in ARCH_MODEL_INV_REGISTRY["transformer_lm"]:
    if _name.startswith("transformer_lm"):
        register_model_architecture("entmax_transformer_lm", f"entmax_{_name}")(
            architecture(EntmaxTransformerLanguageModel, _plainly(ARCH_CONFIG_REGISTRY[_name]))
        )
