"""The model ``entmax_transformer`` and its architectures.

It is fairseq's ``transformer`` with another mapping from attention scores to weights. Each
architecture of fairseq's ``transformer`` has a counterpart: ``transformer_iwslt_de_en``
becomes ``entmax_transformer_iwslt_de_en``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models import register_model
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
)
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import Tensor, nn

from fairseq_entmax.attention import mark_future_mask
from fairseq_entmax.attention.scripting import Scriptable
from fairseq_entmax.fairseq_patches import installing
from fairseq_entmax.kernels.tracing import is_recorded
from fairseq_entmax.models.base import ModelWithHeads, drawn_seed, register_counterparts
from fairseq_entmax.models.feature import ModelOptions

installing.install()

# Attribute of a reordered encoder output: the sentence of each row
_SENTENCES = "_sentence_of_row"
# A number that no layer of fairseq's decoder has
NO_LAYER = -1


class EntmaxTransformerEncoder(Scriptable, TransformerEncoderBase):
    """fairseq's encoder; :func:`wrap_layers` wraps its layers once they have their heads."""

    scriptable_class = TransformerEncoderBase

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        return TransformerEncoderLayerBase(cfg, return_fc=self.return_fc)

    def reorder_encoder_out(self, encoder_out: dict[str, list[Tensor]], new_order: Tensor) -> Any:
        """Select rows, as fairseq does in each step of a search.

        The hypotheses of a sentence have equal rows. If none takes a row of another sentence, the
        output is returned unchanged. Not on a GPU, where looking at the order would mean a wait.
        """
        rows = encoder_out["encoder_out"]
        if not rows or rows[0].device.type != "cpu" or is_recorded():
            return super().reorder_encoder_out(encoder_out, new_order)
        before = getattr(rows[0], _SENTENCES, None)
        after = new_order.clone() if before is None else before.index_select(0, new_order)
        if before is not None and torch.equal(before, after):
            return encoder_out
        reordered = super().reorder_encoder_out(encoder_out, new_order)
        setattr(reordered["encoder_out"][0], _SENTENCES, after)
        return reordered


class EntmaxTransformerDecoder(Scriptable, TransformerDecoderBase):
    """fairseq's decoder; :func:`wrap_layers` wraps its layers once they have their heads."""

    scriptable_class = TransformerDecoderBase
    weights_may_be_unread: ClassVar[bool] = True
    # Whether its output in training may lack the weights of the last cross-attention
    weights_are_unread = False

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        return TransformerDecoderLayerBase(cfg, no_encoder_attn)

    def buffered_future_mask(self, tensor: Tensor) -> Tensor:
        return mark_future_mask(super().buffered_future_mask(tensor))

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Any,
        incremental_state: Any = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> Any:
        """Like fairseq's, with the same arguments, but may leave out weights that nobody reads.

        Alignments are those of the last layer whose cross-attention has heads left.
        """
        if alignment_layer is None:
            alignment_layer = self._alignment_layer()
        return super().extract_features(
            prev_output_tokens,
            encoder_out,
            incremental_state,
            full_context_alignment,
            alignment_layer,
            alignment_heads,
        )

    def _alignment_layer(self) -> int | None:
        if self.training:
            return NO_LAYER if self.weights_are_unread else None
        # With LayerDrop, iterating over the layers themselves draws random numbers
        attentions = [layer.encoder_attn for layer in self.layers.children()]
        with_heads = [
            i for i, attention in enumerate(attentions) if attention and attention.num_heads
        ]
        return with_heads[-1] if with_heads else None


def wrap_layers(stack: Any, cfg: Any) -> None:
    """Apply ``--checkpoint-activations`` and fully sharded training to layers, as fairseq does."""
    min_num_params = cfg.min_params_to_wrap
    # By name: with LayerDrop, iterating over the layers themselves skips some at random
    for name, layer in list(stack.layers.named_children()):
        if cfg.checkpoint_activations:
            layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
            # a checkpointed layer is always wrapped, whatever its size
            min_num_params = 0
        stack.layers[int(name)] = fsdp_wrap(layer, min_num_params=min_num_params)


@register_model("entmax_transformer")
class EntmaxTransformerModel(ModelWithHeads, TransformerModel):
    """fairseq's ``transformer`` with alpha-entmax attention.

    Takes every option of fairseq's ``transformer``, and those of
    :mod:`fairseq_entmax.models.config`. A checkpoint of a stock ``transformer`` can be
    loaded: what it lacks starts as in a new model, and is logged.

    Source: Correia, Niculae, Martins 2019, *Adaptively Sparse Transformers*.
    """

    scriptable_class = TransformerModel
    weights_may_be_unread: ClassVar[bool] = True
    encoder_class: ClassVar[type[EntmaxTransformerEncoder]] = EntmaxTransformerEncoder
    cfg: Any
    decoder: Any

    @classmethod
    def attention_options_of(cls, args: Any) -> ModelOptions:
        return super().attention_options_of(TransformerConfig.from_namespace(args))

    @classmethod
    def build_model(cls, args: Any, task: Any) -> Any:
        model = super().build_model(args, task)
        wrap_layers(model.encoder, model.cfg)
        wrap_layers(model.decoder, model.cfg)
        return model

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Module) -> nn.Module:
        # Drawn here so that a seed keeps giving the same alphas
        cfg.head_seed = drawn_seed()
        return cls.encoder_class(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Module) -> nn.Module:
        return EntmaxTransformerDecoder(
            cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )


register_counterparts("transformer", EntmaxTransformerModel)
