"""Attention as one fused function that never stores the scores, where there is such a function."""

from __future__ import annotations

from typing import Any

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor
from torch.nn import functional

from fairseq_entmax import compat, kernels
from fairseq_entmax.attention import masks
from fairseq_entmax.attention.base import AttentionWithHeads
from fairseq_entmax.attention.request import Answer, Request
from fairseq_entmax.kernels.dropout import new_seed
from fairseq_entmax.kernels.inputs import ScoreSettings, join_heads, split_heads
from fairseq_entmax.kernels.tracing import is_recorded, outside_graphs
from fairseq_entmax.mappings.base import has_hook


def attend(attention: AttentionWithHeads, request: Request) -> Answer | None:
    """The output of whole sequences; None in decoding, if weights are wanted, or no kernel fits."""
    if (
        request.incremental_state is not None
        or request.key is None
        or request.wants_weights
        or request.before_softmax
        or attention.is_observed()
    ):
        return None
    heads = _heads(attention, request, request.key)
    return None if heads is None else (attention.output(heads), None)


@outside_graphs
def _heads(attention: AttentionWithHeads, request: Request, key: Tensor) -> Tensor | None:
    """The concatenated heads ``(queries, batch, width)``, or None if no function fits."""
    query, attn_mask, padding = request.query, request.attn_mask, request.key_padding_mask
    dropout = attention.dropout_module
    drops = dropout.p > 0 and (dropout.training or dropout.apply_during_inference)
    if drops and (dropout.p >= 1 or _is_changed(dropout)):
        return None
    if key.size(1) != query.size(1) or not masks.is_plain(attn_mask, query, key):
        return None
    mapping = attention.mapping
    assert mapping is not None
    if mapping.score_scale() is not None and not masks.every_query_has_a_key(None, attn_mask):
        return None  # the mapping scales the numbers that a mask adds too
    settings: dict[str, Any] = {"dropout": dropout.p} if drops else {}
    if mapping.is_softmax:
        # For training cross-attention, gates, fewer heads or a temperature; fairseq does the rest
        function: Any = softmax_attention
        if not masks.every_query_has_a_key(padding, attn_mask):
            return None
    else:
        settings["epsilon"] = mapping.epsilon()
        if settings["epsilon"] is None or is_recorded():  # a trace shows no kernel
            return None
        function = kernels.attention_for(query, compat.computing_dtype(query), attention.head_dim)
        if function is None:
            return None
        if drops:
            # From torch's generator, whose state is restored when activations are recomputed
            settings["seed"] = new_seed()
    if padding is not None:
        # fairseq may pass a mask without dimensions for no padding
        padding = padding.to(torch.bool) if padding.dim() else None
    causal = masks.is_marked_future_mask(attn_mask)
    output: Tensor = function(
        attention.queries(query),
        *attention.keys_and_values(query, key, request.value),
        heads=attention.num_heads,
        key_padding_mask=padding,
        attn_mask=None if causal else attn_mask,
        causal=causal,
        scale=attention.scaling,
        **settings,
    )
    return output


def _is_changed(dropout: Any) -> bool:
    """Whether dropout is not fairseq's own module, or is overridden or hooked."""
    return type(dropout) is not FairseqDropout or "forward" in vars(dropout) or has_hook(dropout)


def softmax_attention(
    query: Tensor, key: Tensor, value: Tensor, heads: int, **settings: Any
) -> Tensor:
    """``softmax(scale query key^T + masks) value`` by torch, if every query sees a key.

    Arguments are those of :func:`fairseq_entmax.kernels.attention.attention`; dropout uses
    torch's generator.
    """
    padding, mask, causal, scale, dropout, _ = ScoreSettings(**settings)
    mask = None if mask is None else mask.to(query.dtype)
    if padding is not None:
        if causal:
            # -inf above the diagonal, like fairseq's mask
            mask = query.new_full((len(query), len(key)), -torch.inf).triu(1)
            causal = False
        padded = query.new_zeros(padding.shape).masked_fill(padding, -torch.inf)[:, None, None]
        mask = padded if mask is None else mask + padded
    query, key, value = (split_heads(one, heads) for one in (query, key, value))
    output = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
    )
    return join_heads(output)
