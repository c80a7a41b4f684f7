"""The whole of attention as one function, without scores in memory, where there is one for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from fairseq.modules import FairseqDropout
from torch import Tensor
from torch.nn import functional

from fairseq_entmax import compat, kernels
from fairseq_entmax.attention import masks
from fairseq_entmax.attention.base import AttentionWithHeads, has_hook
from fairseq_entmax.attention.projections import split_heads
from fairseq_entmax.kernels.dropout import new_seed
from fairseq_entmax.kernels.tracing import outside_graphs


@outside_graphs
def attend(
    attention: AttentionWithHeads,
    query: Tensor,
    key: Tensor,
    value: Tensor | None,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
) -> Tensor | None:
    """The heads ``(batch, heads, queries, head_dim)`` of whole sequences; None where parts are apart.

    Of an attention with heads, whose weights nobody asks for.
    """
    dropout = attention.dropout_module
    drops = dropout.p > 0 and (dropout.training or dropout.apply_during_inference)
    has_more_keys = attention.bias_k is not None or attention.add_zero_attn
    if (drops and (dropout.p >= 1 or _is_changed(dropout))) or has_more_keys:
        return None
    if key.size(1) != query.size(1) or not masks.is_plain(attn_mask, query, key):
        return None
    function = _function(attention, query, key_padding_mask, attn_mask)
    if function is None:
        return None
    if attention.self_attention:
        key = value = query
    elif attention.encoder_decoder_attention:
        value = key
    assert value is not None
    if key_padding_mask is not None:
        # fairseq's way to say that there is none has no dimensions
        key_padding_mask = key_padding_mask.to(torch.bool) if key_padding_mask.dim() else None
    causal = masks.hides_future_alone(attn_mask)
    given: dict[str, Any] = {"dropout": dropout.p} if drops else {}
    if drops and function is not softmax_attention:
        # Of torch's generator, which is set back where activations are computed again
        given["seed"] = new_seed()
    heads = attention.num_heads
    return function(
        split_heads(attention.q_proj(query), heads),
        split_heads(attention.k_proj(key), heads),
        split_heads(attention.v_proj(value), heads),
        key_padding_mask=key_padding_mask,
        attn_mask=None if causal else attn_mask,
        causal=causal,
        scale=attention.scaling,
        **given,
    )


def _function(
    attention: AttentionWithHeads,
    query: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
) -> Callable[..., Tensor] | None:
    assert attention.mapping is not None
    if attention.mapping.is_softmax:
        # Of the cross-attention, with gates or fewer heads; other attention is fairseq's own
        has_keys = masks.leave_each_query_a_key(key_padding_mask, attn_mask)
        return softmax_attention if has_keys else None
    formula = attention.mapping.fused()
    if formula is None:
        return None
    dtype = compat.computing_dtype(query)
    return kernels.attention_for(query, dtype, attention.head_dim, formula)


def _is_changed(dropout: Any) -> bool:
    """Whether it is another module than fairseq's, or somebody sees what it is given."""
    return type(dropout) is not FairseqDropout or "forward" in vars(dropout) or has_hook(dropout)


def softmax_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    causal: bool = False,
    scale: float = 1.0,
    dropout: float = 0.0,
) -> Tensor:
    """``softmax(scale query key^T + masks) value`` by torch, of queries that each see a key.

    Arguments are those of :func:`fairseq_entmax.kernels.attention.attention`; dropout is by torch's
    generator.
    """
    mask = None if attn_mask is None else attn_mask.to(query.dtype)
    if key_padding_mask is not None:
        if causal:
            queries, keys = query.size(2), key.size(2)
            # -inf above the diagonal, as fairseq's mask
            mask = query.new_full((queries, keys), -torch.inf).triu(1 + keys - queries)
            causal = False
        padding = query.new_zeros(key_padding_mask.shape)
        padding = padding.masked_fill(key_padding_mask, -torch.inf)[:, None, None]
        mask = padding if mask is None else mask + padding
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
    )
