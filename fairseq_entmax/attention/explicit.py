"""The explicit product: scores, the mapping itself, and a sum of values; for whatever is asked.

fairseq's own forward pass does the projections here, with the masks, the cache of a search and its
reordering, up to the scores: so these are fairseq's in every release. The other ways project
by the same modules.
"""

from __future__ import annotations

import torch
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention

from fairseq_entmax.attention import decoding_step
from fairseq_entmax.attention.base import AttentionWithHeads
from fairseq_entmax.attention.projections import weighted_sum
from fairseq_entmax.attention.request import Answer, Request


def attend(attention: AttentionWithHeads, request: Request) -> Answer:
    """The output and weights of an attention with heads, or its scores and values."""
    if request.incremental_state is not None:
        decoding_step.as_fairseq_reads(attention, request.incremental_state)
    up_to_scores = request._replace(before_softmax=True, need_head_weights=False)
    scores, values = FairseqMultiheadAttention.forward(attention, *up_to_scores)
    if request.before_softmax:
        return scores, values
    assert attention.mapping is not None
    queries, batch = request.query.shape[:2]
    in_full = scores if scores.dtype == torch.float64 else scores.float()
    in_full = in_full.view(batch, attention.num_heads, queries, -1)
    probs = attention.mapping(in_full)
    attention.show(probs)
    weights = attention.dropout_module(probs.to(scores.dtype))
    output = attention.output(weighted_sum(weights, values))
    if request.need_head_weights and attention.scores_of:
        # As a result of the layer, which --checkpoint-activations gives gradients
        probs = torch.cat([probs, in_full[:, list(attention.scores_of)]], 1)
    return output, request.select_weights(probs)
