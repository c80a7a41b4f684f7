"""Multihead attention with any mapping from scores to probabilities."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from fairseq_entmax.attention import decoding_step, fused, masks
from fairseq_entmax.attention.base import AttentionWithHeads, has_hook
from fairseq_entmax.attention.projections import weighted_sum
from fairseq_entmax.attention.scripting import ScriptableAttention


class MultiheadAttention(AttentionWithHeads):
    """fairseq's multihead attention with its softmax replaced by a mapping.

    fairseq's own forward pass does the projections, the masks, the cache of incremental
    decoding and its reordering, and hands back scores and values; what follows the scores
    is done here.

    Where there are fewer heads than the width has place for, the projections are as much smaller.
    An attention without heads gives the bias of its output projection at every position.

    Args:
        embed_dim: width of the queries and of the output.
        num_heads: number of heads that share the width, which they divide: a head has
            ``embed_dim / num_heads`` dimensions.
        mapping: scores ``(batch, heads, queries, keys)`` to probabilities; None where
            there are no heads.
        kept_heads: number of heads that there are, 0 to ``num_heads``; None for all.
        gate: multiplies the output of each head; None for no gates.
        **options: those of fairseq's ``MultiheadAttention``.

    Attributes:
        num_heads: number of heads that there are.
        filled: parameters that the last loaded state dict did not have, and that kept their values.
        scores_of: heads whose scores stand behind the weights that ``need_head_weights`` returns.

    Raises:
        ValueError: the number of heads, mapping and gate do not fit each other; keys are not words
            alone, where the mapping needs that.
    """

    scriptable_class = ScriptableAttention

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
        """Attend; arguments are those of fairseq's attention.

        Queries are ``(queries, batch, embed_dim)``, keys and values ``(keys, batch, kdim or vdim)``,
        or None where the cache has them; ``key_padding_mask`` ``(batch, keys)``; ``attn_mask``
        ``(queries, keys)``, added to the scores.

        Returns:
            The output ``(queries, batch, embed_dim)``, and the weights as probabilities
            before dropout and gates in float32 (float64 for a float64 model): ``(batch,
            queries, keys)``, or ``(heads, batch, queries, keys)`` with ``need_head_weights``, or
            None. Without heads they are 0, in one head. Behind the weights of all heads stand the
            scores of those in ``scores_of``. Scores and values with ``before_softmax``.
        """
        if self.mapping is None:
            return self._without_heads(query, key, need_weights, need_head_weights)
        if incremental_state is not None:
            scores_too = before_softmax or (need_head_weights and bool(self.scores_of))
            if attn_mask is None and not scores_too and not self.is_watched():
                wants = need_weights or need_head_weights
                found = decoding_step.attend(
                    self, query, key, key_padding_mask, incremental_state, static_kv, wants
                )
                if found is not None:
                    return self.output(found[0]), _asked(found[1], need_weights, need_head_weights)
            decoding_step.as_fairseq_reads(self, incremental_state)
        # fairseq's softmax of a step is in float32, and its cross-attention of a training in parts
        is_less = static_kv if incremental_state is None else query.dtype == torch.float64
        asks_more = before_softmax or need_head_weights or is_less
        if not asks_more and self._is_fairseqs(key_padding_mask, attn_mask):
            # With torch's fused attention, so that a model with softmax is fairseq's to the bit
            self.skip_embed_dim_check = False
            given = key_padding_mask, incremental_state, need_weights, static_kv, attn_mask
            try:
                return super().forward(query, key, value, *given)
            finally:
                self.skip_embed_dim_check = True
        wants_weights = need_weights or need_head_weights or before_softmax or self.is_watched()
        if key is not None and incremental_state is None and not wants_weights:
            heads = fused.attend(self, query, key, value, key_padding_mask, attn_mask)
            if heads is not None:
                return self.output(heads), None
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
        wide = wide.view(batch, self.num_heads, query_length, -1)
        probs = self.mapping(wide)
        for observer in self._observers:
            observer(probs)
        output = self.output(weighted_sum(self.dropout_module(probs.to(scores.dtype)), values))
        if need_head_weights and self.scores_of:
            # As a result of the layer, which --checkpoint-activations gives gradients
            probs = torch.cat([probs, wide[:, list(self.scores_of)]], 1)
        return output, _asked(probs, need_weights, need_head_weights)

    def reorder_incremental_state(
        self,
        incremental_state: dict[str, dict[str, Tensor | None]] | None,
        new_order: Tensor,
    ) -> dict[str, dict[str, Tensor | None]] | None:
        """Select hypotheses in the cache of incremental decoding, as fairseq does."""
        if decoding_step.reorder(self, incremental_state, new_order):
            return incremental_state
        reordered: Any = super().reorder_incremental_state(incremental_state, new_order)
        return reordered

    def _is_fairseqs(self, key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> bool:
        """Whether fairseq's own attention does all that this one would, and just that.

        It has no gates, gives NaN to a query without keys, and reads the weights of projections.
        """
        projections = (self.q_proj, self.k_proj, self.v_proj, self.out_proj)
        return bool(
            self.mapping is not None
            and self.mapping.is_softmax
            and self.gate is None
            and self.num_heads * self.head_dim == self.embed_dim
            and not self.is_watched()
            and not any(map(_is_changed, projections))
            and masks.leave_each_query_a_key(key_padding_mask, attn_mask)
        )

    def _without_heads(
        self, query: Tensor, key: Tensor | None, need_weights: bool, need_head_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """What is left of an attention that lost all its heads."""
        output: Tensor = self.out_proj()
        if not need_weights and not need_head_weights:
            return output.expand_as(query), None
        keys = query.size(0) if key is None else key.size(0)
        wide = torch.float64 if query.dtype == torch.float64 else torch.float32
        weights = query.new_zeros((query.size(1), query.size(0), keys), dtype=wide)
        return output.expand_as(query), weights[None] if need_head_weights else weights


def _is_changed(projection: Any) -> bool:
    """Whether a projection is more, or other, than its weights."""
    return has_hook(projection) or not isinstance(projection.weight, nn.Parameter)


def _asked(probs: Tensor | None, averaged: bool, of_heads: bool) -> Tensor | None:
    """Weights ``(batch, heads, queries, keys)`` as they are returned, or None."""
    if probs is None or not (averaged or of_heads):
        return None
    return probs.transpose(0, 1) if of_heads else probs.mean(dim=1)
