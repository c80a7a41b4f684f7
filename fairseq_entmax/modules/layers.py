"""Encoder and decoder layers of fairseq around attention with a mapping."""

from __future__ import annotations

from typing import Any

from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import nn

from fairseq_entmax import compat
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.modules.attention import MultiheadAttention


class EntmaxEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer; ``mapping`` serves its self-attention."""

    def __init__(self, cfg: Any, mapping: Mapping, return_fc: bool = False) -> None:
        # fairseq builds the attention inside its constructor
        object.__setattr__(self, "_pending_mapping", mapping)
        super().__init__(cfg, return_fc=return_fc)
        del self.__dict__["_pending_mapping"]
        compat.avoid_fused_encoder_layer(self)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        return MultiheadAttention(
            embed_dim,
            cfg.encoder.attention_heads,
            self._pending_mapping,
            dropout=cfg.attention_dropout,
            self_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
            xformers_att_config=cfg.encoder.xformers_att_config,
        )


class EntmaxDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer, with a mapping for each of its two attentions."""

    def __init__(
        self,
        cfg: Any,
        self_mapping: Mapping,
        cross_mapping: Mapping | None,
        no_encoder_attn: bool = False,
    ) -> None:
        object.__setattr__(self, "_pending_mappings", (self_mapping, cross_mapping))
        super().__init__(cfg, no_encoder_attn)
        del self.__dict__["_pending_mappings"]

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> nn.Module:
        return MultiheadAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            self._pending_mappings[0],
            dropout=cfg.attention_dropout,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            self_attention=not cfg.cross_self_attention,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
            xformers_att_config=cfg.decoder.xformers_att_config,
        )

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        return MultiheadAttention(
            embed_dim,
            cfg.decoder.attention_heads,
            self._pending_mappings[1],
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            dropout=cfg.attention_dropout,
            encoder_decoder_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
            xformers_att_config=cfg.encoder.xformers_att_config,
        )
