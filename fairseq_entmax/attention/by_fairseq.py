"""The two ways to attend by fairseq's own forward pass: all of it, or only up to the scores.

The explicit product leaves projections, masks, the cache of a search and its reordering to that
pass, so that they are fairseq's in every release. The other ways use the same projection modules.
"""

from __future__ import annotations

from typing import Any

import torch
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention
from torch import nn

from fairseq_entmax.attention import decoding_step, masks
from fairseq_entmax.attention.base import AttentionWithHeads
from fairseq_entmax.attention.request import Answer, Request
from fairseq_entmax.kernels.inputs import join_heads
from fairseq_entmax.mappings.base import has_hook
from fairseq_entmax.mappings.functional import in_full_precision


def stock(attention: AttentionWithHeads, request: Request) -> Answer | None:
    """fairseq's own softmax attention, to the bit; None if it cannot do what is asked for.

    It has no gates, gives NaN for a query without keys, and bypasses the projection modules.
    """
    assert attention.mapping is not None
    if not attention.mapping.is_softmax or request.before_softmax or request.need_head_weights:
        return None
    # In decoding and in cross-attention its softmax is in float32, too coarse for float64
    in_a_step = request.incremental_state is not None
    if (in_a_step or request.static_kv) and request.query.dtype == torch.float64:
        return None
    # Its cross-attention is slow in training
    if request.static_kv and attention.training and not in_a_step:
        return None
    projections = (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj)
    if (
        attention.gate is not None
        or attention.num_heads * attention.head_dim != attention.embed_dim
        or attention.is_observed()
        or attention.mapping.score_scale() is not None
        or any(map(_is_changed, projections))
        or not masks.every_query_has_a_key(request.key_padding_mask, request.attn_mask)
    ):
        return None
    answer: Answer = FairseqMultiheadAttention.forward(attention, *request)
    return answer


def explicit(attention: AttentionWithHeads, request: Request) -> Answer:
    """Compute scores, the mapping and the weighted sum of values; answers every request."""
    if request.incremental_state is not None:
        decoding_step.as_fairseq_reads(attention, request.incremental_state)
    up_to_scores = request._replace(before_softmax=True, need_head_weights=False)
    if request.incremental_state is None:
        # Otherwise fairseq calls torch's fused attention, which never shows the scores
        up_to_scores = up_to_scores._replace(static_kv=True)
    scores, values = FairseqMultiheadAttention.forward(attention, *up_to_scores)
    if request.before_softmax:
        return scores, values
    assert attention.mapping is not None
    queries, batch = request.query.shape[:2]
    in_full = in_full_precision(scores).view(batch, attention.num_heads, queries, -1)
    probs = attention.mapping(in_full)
    for observer in attention._observers:
        observer(probs)
    weights = attention.dropout_module(probs.to(scores.dtype)).view_as(scores)
    if len(values) < len(weights):  # fairseq has the keys of a source once for all its queries
        values = values.view(-1, attention.num_heads, *values.shape[1:])
        values = values.repeat_interleave(batch // len(values), 0).flatten(0, 1)
    heads = torch.bmm(weights, values).view(batch, attention.num_heads, queries, -1)
    output = attention.output(join_heads(heads))
    if request.need_head_weights and attention.scores_of:
        # Returned by the layer, so that they get gradients with --checkpoint-activations
        scores = attention.mapping.scaled(in_full)
        probs = torch.cat([probs, scores[:, list(attention.scores_of)]], 1)
    return output, request.select_weights(probs)


def _is_changed(projection: Any) -> bool:
    """Whether a projection has hooks, or is no plain linear layer, such as one with an adapter."""
    return has_hook(projection) or type(projection) is not nn.Linear
