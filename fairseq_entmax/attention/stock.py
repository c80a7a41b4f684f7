"""fairseq's own attention, which calls torch's: a model with softmax is fairseq's to the bit."""

from __future__ import annotations

from typing import Any

import torch
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention
from torch import nn

from fairseq_entmax.attention import masks
from fairseq_entmax.attention.base import AttentionWithHeads, has_hook
from fairseq_entmax.attention.request import Answer, Request


def attend(attention: AttentionWithHeads, request: Request) -> Answer | None:
    """All that attention does, by fairseq; None where it would do less, or something else.

    fairseq's has no gates, gives NaN to a query without keys, and reads the weights of projections.
    """
    assert attention.mapping is not None
    if not attention.mapping.is_softmax or request.before_softmax or request.need_head_weights:
        return None
    # Its softmax of a step is in float32, and its cross-attention of a training in parts
    in_a_step = request.incremental_state is not None
    if request.query.dtype == torch.float64 if in_a_step else request.static_kv:
        return None
    projections = (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj)
    if (
        attention.gate is not None
        or attention.num_heads * attention.head_dim != attention.embed_dim
        or attention.is_watched()
        or any(map(_is_changed, projections))
        or not masks.leave_each_query_a_key(request.key_padding_mask, request.attn_mask)
    ):
        return None
    attention.skip_embed_dim_check = False
    try:
        answer: Answer = FairseqMultiheadAttention.forward(attention, *request)
        return answer
    finally:
        attention.skip_embed_dim_check = True


def _is_changed(projection: Any) -> bool:
    """Whether a projection is more, or other, than its weights."""
    return has_hook(projection) or not isinstance(projection.weight, nn.Parameter)
