"""Multihead attention with any mapping from scores to probabilities."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.attention import by_fairseq, decoding_step, fused, masks
from fairseq_entmax.attention.base import AttentionWithHeads
from fairseq_entmax.attention.request import Answer, Request
from fairseq_entmax.attention.scripting import ScriptableAttention

# Tried in turn before the explicit product: each answers, or returns None and changes nothing
FASTER_WAYS = (by_fairseq.stock, decoding_step.attend, fused.attend)


class MultiheadAttention(AttentionWithHeads):
    """fairseq's multihead attention with its softmax replaced by a mapping.

    Each call is a :class:`Request`, answered by the first way that can: fairseq's own attention for
    softmax, a decoding step, a fused kernel, or the explicit product.

    With fewer heads than the width has room for, the projections shrink in proportion. An attention
    without heads outputs the bias of its output projection at every position.

    Args:
        embed_dim: width of the queries and of the output.
        num_heads: number of heads into which the width is divided: each has
            ``embed_dim / num_heads`` dimensions.
        mapping: maps scores ``(batch, heads, queries, keys)`` to probabilities; None if
            there are no heads.
        remaining_heads: number of heads that remain, 0 to ``num_heads``; None for all.
        gate: multiplies the output of each head; None for no gates.
        **options: those of fairseq's ``MultiheadAttention``.

    Attributes:
        num_heads: number of remaining heads.
        filled: parameters that the last loaded state dict lacked, and that kept their values.
        scores_of: heads whose scores follow the weights that ``need_head_weights`` returns.

    Raises:
        ValueError: the number of heads, mapping and gate do not fit each other; ``add_bias_kv`` or
            ``add_zero_attn`` would add a key that is not a word.
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
    ) -> Answer:
        """Attend; the arguments are those of :class:`fairseq_entmax.attention.request.Request`.

        Returns:
            The output ``(queries, batch, embed_dim)`` and the attention weights: probabilities
            before dropout and gates, in float32 (float64 for a float64 model), ``(batch,
            queries, keys)``, or ``(heads, batch, queries, keys)`` with ``need_head_weights``, or
            None. Without heads they are the zeros of one head. After the weights of all heads come
            the scores of those in ``scores_of``. With ``before_softmax``: scores and values.
        """
        request = Request(
            *(query, key, value, key_padding_mask, incremental_state, need_weights),
            *(static_kv, attn_mask if attn_mask is None else masks.to_add(attn_mask, query)),
            *(before_softmax, need_head_weights),
        )
        if self.mapping is None:
            return self._without_heads(request)
        for attend in FASTER_WAYS:
            answer = attend(self, request)
            if answer is not None:
                return answer
        return by_fairseq.explicit(self, request)

    def reorder_incremental_state(
        self, incremental_state: dict[str, dict[str, Tensor | None]] | None, new_order: Tensor
    ) -> dict[str, dict[str, Tensor | None]] | None:
        """Select hypotheses in the cache of incremental decoding, as fairseq does."""
        if decoding_step.reorder(self, incremental_state, new_order):
            return incremental_state
        reordered: Any = super().reorder_incremental_state(incremental_state, new_order)
        return reordered

    def _without_heads(self, request: Request) -> Answer:
        query, key = request.query, request.key
        output: Tensor = self.out_proj().expand_as(query)
        if not request.wants_weights:
            return output, None
        keys = query.size(0) if key is None else key.size(0)
        dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
        weights = query.new_zeros((query.size(1), query.size(0), keys), dtype=dtype)
        return output, weights[None] if request.need_head_weights else weights
