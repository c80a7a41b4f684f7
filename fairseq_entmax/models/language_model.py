"""The model ``entmax_transformer_lm`` and its architectures.

It is fairseq's decoder-only ``transformer_lm`` with another mapping from attention scores to
weights. Each architecture of fairseq's ``transformer_lm``, except Megatron's, has a counterpart:
``transformer_lm_gpt`` becomes ``entmax_transformer_lm_gpt``.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any
from unittest import mock

from fairseq.models import register_model, transformer_lm
from fairseq.models.transformer import TransformerConfig
from fairseq.models.transformer_lm import TransformerLanguageModel, TransformerLanguageModelConfig
from omegaconf import OmegaConf, open_dict
from torch import nn

from fairseq_entmax.attentions import DECODER_SELF
from fairseq_entmax.models.base import ModelWithHeads, register_counterparts
from fairseq_entmax.models.entmax_transformer import EntmaxTransformerDecoder, wrap_layers
from fairseq_entmax.models.feature import ModelOptions
from fairseq_entmax.models.scripting import ScriptableLanguageModel

# Options of other sections that fairseq's model reads too
BORROWED = {
    "task": ("add_bos_token", "tokens_per_sample", "max_target_positions"),
    "common": ("tpu",),
}


def _decoder(args: Any, *parts: Any, **options: Any) -> EntmaxTransformerDecoder:
    decoder = EntmaxTransformerDecoder(TransformerConfig.from_namespace(args), *parts, **options)
    decoder.args = args  # as in fairseq's decoder
    return decoder


@register_model("entmax_transformer_lm")
class EntmaxTransformerLanguageModel(ModelWithHeads, TransformerLanguageModel):
    """fairseq's ``transformer_lm`` with alpha-entmax attention, for the task ``language_modeling``.

    Takes the options of fairseq's ``transformer_lm`` (docs/language_models.md), and those of
    :mod:`fairseq_entmax.models.config` that apply to a decoder. A checkpoint of a stock
    ``transformer_lm`` can be loaded: what it lacks starts as in a new model, and is logged.
    """

    scriptable_class = ScriptableLanguageModel
    attentions = (DECODER_SELF,)
    decoder: Any

    @classmethod
    def _namespace(cls, cfg: Any) -> Namespace:
        """Options of the ``model`` section, with those that the model shares with other sections."""
        root = cfg._get_root()
        for section, names in BORROWED.items():
            of_section = root.get(section) or {}
            borrowed = {name: of_section.get(name) for name in names if cfg.get(name) is None}
            with open_dict(cfg):  # the section that checkpoints store for the model
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
        # fairseq hard-codes the class of the decoder
        with mock.patch.object(transformer_lm, "TransformerDecoder", _decoder):
            model = super().build_model(args, task)
        wrap_layers(model.decoder, model.decoder.cfg)
        return model

    def scriptable_form(self) -> nn.Module:
        embedding = self.decoder.embed_tokens
        if self.decoder.adaptive_softmax is not None or not isinstance(embedding, nn.Embedding):
            raise ValueError(
                "a language model with --adaptive-input, --adaptive-softmax-cutoff or --character-embeddings "
                "cannot be scripted or exported, as fairseq's own cannot: use one embedding per word"
            )
        return super().scriptable_form()


def stock_defaults() -> dict[str, Any]:
    """The defaults in the dataclass of fairseq's ``transformer_lm``, without borrowed options."""
    defaults = {}
    for entry in fields(TransformerLanguageModelConfig):
        default = entry.default if entry.default is not MISSING else None
        is_borrowed = isinstance(default, str) and default.startswith("${")
        if entry.name != "_name" and not is_borrowed:
            defaults[entry.name] = default
    return defaults


def _with_stock_defaults(fill_in: Callable[[Any], None]) -> Callable[[Any], None]:
    """Wrap fairseq's function of an architecture, and add the defaults of its dataclass."""

    def defaults(args: Any) -> None:
        # Some of fairseq's functions would take the None of an unset option for a value
        settings = vars(args) if isinstance(args, Namespace) else OmegaConf.to_container(args)
        plain = Namespace(**{name: value for name, value in settings.items() if value is not None})
        fill_in(plain)
        filled = {name: value for name, value in vars(plain).items() if value is not None}
        for name, value in {**vars(plain), **stock_defaults(), **filled}.items():
            setattr(args, name, value)

    return defaults


register_counterparts(
    "transformer_lm", EntmaxTransformerLanguageModel, adapted=_with_stock_defaults
)
