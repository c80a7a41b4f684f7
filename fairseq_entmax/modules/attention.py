"""Multihead attention with any mapping from scores to probabilities."""

from __future__ import annotations

from typing import Any

import torch
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention
from torch import Tensor

from fairseq_entmax import compat
from fairseq_entmax.mappings import Mapping

# The three attentions of a Transformer, named the same in options, logs and files.
ENCODER_SELF, DECODER_SELF, CROSS = "encoder-self", "decoder-self", "cross"
ATTENTIONS = (ENCODER_SELF, DECODER_SELF, CROSS)


class MultiheadAttention(FairseqMultiheadAttention):
    """fairseq's multihead attention with its softmax replaced by a mapping.

    fairseq's own forward pass does the projections, the masks, the cache of incremental
    decoding and its reordering, and hands back scores and values; what follows the scores
    is done here.

    Args:
        embed_dim: width of the queries and of the output.
        num_heads: number of heads; divides ``embed_dim``.
        mapping: scores ``(batch, heads, queries, keys)`` to probabilities.
        **options: those of fairseq's ``MultiheadAttention``.

    Attributes:
        filled: names of the parameters that the last loaded state dict did not have. They
            kept the values they had.

    Raises:
        ValueError: an xFormers attention is asked for, which would bypass the mapping.
    """

    def __init__(self, embed_dim: int, num_heads: int, mapping: Mapping, **options: Any) -> None:
        if options.get("xformers_att_config") is not None:
            raise ValueError(
                "--encoder-xformers-att-config and --decoder-xformers-att-config replace the "
                "attention as a whole and leave no place for a mapping: drop them, or use "
                "fairseq's own transformer"
            )
        super().__init__(embed_dim, num_heads, **options)
        self.mapping = mapping
        self.filled: list[str] = []
        # Otherwise fairseq calls torch's fused attention, which never shows the scores
        self.skip_embed_dim_check = True

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend.

        Args:
            query: ``(queries, batch, embed_dim)``.
            key: ``(keys, batch, kdim)``; None where the cache has it.
            value: ``(keys, batch, vdim)``; None where the cache has it.
            key_padding_mask: ``(batch, keys)``, true at padding.
            incremental_state: fairseq's cache, for decoding one query at a time.
            need_weights: also return the weights, averaged over heads.
            static_kv: key and value are the same at every step.
            attn_mask: ``(queries, keys)``, added to the scores.
            before_softmax: return scores and values, as fairseq does.
            need_head_weights: also return the weights of every head.

        Returns:
            The output ``(queries, batch, embed_dim)``, and the weights as probabilities
            before dropout in float32 (float64 for a float64 model): ``(batch, queries,
            keys)``, or ``(heads, batch, queries, keys)`` with ``need_head_weights``, or None.
        """
        scores, values = super().forward(
            query,
            key,
            value,
            key_padding_mask=key_padding_mask,
            incremental_state=incremental_state,
            static_kv=static_kv,
            attn_mask=attn_mask,
            before_softmax=True,
        )
        if before_softmax:
            return scores, values
        query_length, batch = query.size(0), query.size(1)
        wide = scores if scores.dtype == torch.float64 else scores.float()
        probs = self.mapping(wide.view(batch, self.num_heads, query_length, -1))
        heads = self._weighted_sum(self.dropout_module(probs.to(scores.dtype)), values)
        merged = heads.permute(2, 0, 1, 3).reshape(query_length, batch, -1)
        output = self.out_proj(merged)
        weights: Tensor | None = None
        if need_head_weights:
            weights = probs.transpose(0, 1)
        elif need_weights:
            weights = probs.mean(dim=1)
        return output, weights

    def _weighted_sum(self, probs: Tensor, values: Tensor) -> Tensor:
        """``(batch, heads, queries, keys)`` and values to ``(batch, heads, queries, head_dim)``.

        In beam search fairseq keeps the values of cross-attention once a sentence, not once
        a hypothesis: their batch is then smaller than that of the probabilities.
        """
        batch, heads, queries, keys = probs.shape
        if values.size(0) == batch * heads:
            product = torch.bmm(probs.reshape(batch * heads, queries, keys), values)
            return product.view(batch, heads, queries, -1)
        sentences = values.size(0) // heads
        product = torch.einsum(
            "sbhqk,shkd->sbhqd",
            probs.view(sentences, -1, heads, queries, keys),
            values.view(sentences, heads, keys, -1),
        )
        return product.reshape(batch, heads, queries, -1)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Keep the present value of what the mapping learns where a checkpoint lacks it."""
        self.filled = []
        for name, parameter in self.mapping.named_parameters(prefix="mapping"):
            is_new = prefix + name not in state_dict
            compat.mark_as_new(parameter, is_new)
            if is_new:
                state_dict[prefix + name] = parameter.detach().clone()
                self.filled.append(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
