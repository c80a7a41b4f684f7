"""Softmax attention by torch's own fused kernels, for what fairseq's attention does not compute."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional


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
    """``softmax(scale query key^T + masks) value``, of queries that each see a key.

    Args:
        query, key, value, key_padding_mask, attn_mask, causal, scale: as
            :func:`fairseq_entmax.kernels.attention.attention`.
        dropout: the probability with which a weight becomes 0, by torch's generator.

    Returns:
        ``(batch, heads, queries, head_dim)``.
    """
    mask = attn_mask
    if key_padding_mask is not None:
        if causal:
            queries, keys = query.size(2), key.size(2)
            # -inf above the diagonal, as fairseq's mask
            mask = query.new_full((queries, keys), -torch.inf).triu(1 + keys - queries)
            causal = False
        padding = query.new_zeros(key_padding_mask.shape)
        padding = padding.masked_fill(key_padding_mask, -torch.inf)[:, None, None]
        mask = padding if mask is None else mask.to(query.dtype) + padding
    elif mask is not None:
        mask = mask.to(query.dtype)
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
    )
