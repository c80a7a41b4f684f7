"""Encoder and decoder layers of fairseq around attention with a mapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import nn

from fairseq_entmax import compat
from fairseq_entmax.mappings import Mapping
from fairseq_entmax.modules.attention import MultiheadAttention
from fairseq_entmax.modules.gates import HardConcreteGate


@dataclass(frozen=True)
class Heads:
    """The heads of one attention in one layer.

    Attributes:
        number: how many there are, 0 or more.
        mapping: from their scores to weights; None where there are none.
        gate: their gates; None for no gates.
    """

    number: int
    mapping: Mapping | None
    gate: HardConcreteGate | None = None


class EntmaxEncoderLayer(TransformerEncoderLayerBase):
    """fairseq's encoder layer; ``heads`` are those of its self-attention."""

    def __init__(self, cfg: Any, heads: Heads, return_fc: bool = False) -> None:
        # fairseq builds the attention inside its constructor
        object.__setattr__(self, "_pending", heads)
        super().__init__(cfg, return_fc=return_fc)
        del self.__dict__["_pending"]
        if heads.number == 0 and self.normalize_before:
            self.self_attn_layer_norm = nn.Identity()  # nothing would look at its output
        compat.avoid_fused_encoder_layer(self)

    def build_self_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        return _attention(
            self._pending,
            embed_dim,
            cfg.encoder.attention_heads,
            dropout=cfg.attention_dropout,
            self_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
            xformers_att_config=cfg.encoder.xformers_att_config,
        )


class EntmaxDecoderLayer(TransformerDecoderLayerBase):
    """fairseq's decoder layer, with the heads of each of its two attentions."""

    def __init__(
        self,
        cfg: Any,
        self_heads: Heads,
        cross_heads: Heads | None,
        no_encoder_attn: bool = False,
    ) -> None:
        object.__setattr__(self, "_pending", (self_heads, cross_heads))
        super().__init__(cfg, no_encoder_attn)
        del self.__dict__["_pending"]
        if self.normalize_before:
            if self_heads.number == 0:
                self.self_attn_layer_norm = nn.Identity()
            if cross_heads is not None and cross_heads.number == 0:
                self.encoder_attn_layer_norm = nn.Identity()

    def build_self_attention(
        self, embed_dim: int, cfg: Any, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> nn.Module:
        return _attention(
            self._pending[0],
            embed_dim,
            cfg.decoder.attention_heads,
            dropout=cfg.attention_dropout,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
            self_attention=not cfg.cross_self_attention,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
            xformers_att_config=cfg.decoder.xformers_att_config,
        )

    def build_encoder_attention(self, embed_dim: int, cfg: Any) -> nn.Module:
        return _attention(
            self._pending[1],
            embed_dim,
            cfg.decoder.attention_heads,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            dropout=cfg.attention_dropout,
            encoder_decoder_attention=True,
            q_noise=self.quant_noise,
            qn_block_size=self.quant_noise_block_size,
            xformers_att_config=cfg.encoder.xformers_att_config,
        )


def _attention(heads: Heads, embed_dim: int, num_heads: int, **options: Any) -> MultiheadAttention:
    return MultiheadAttention(
        embed_dim, num_heads, heads.mapping, kept_heads=heads.number, gate=heads.gate, **options
    )
