"""A decoding step: one query per hypothesis, and the cache of earlier steps.

fairseq's attention concatenates the cache anew in each step, and copies it when hypotheses change
their order. Here keys and values stay where they were written, and one call of a kernel, if there
is one, does the rest. Code that reads the cache still finds it in fairseq's form.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_entmax import compat, kernels
from fairseq_entmax.attention.base import AttentionWithHeads
from fairseq_entmax.attention.kv_cache import PADDING, Cache, HypothesesCache, SourceCache
from fairseq_entmax.attention.request import Answer, Request
from fairseq_entmax.kernels.inputs import epsilon_of_heads, split_heads
from fairseq_entmax.kernels.tracing import is_recorded, outside_graphs

State = dict[str, dict[str, Any]]

# fairseq's name of the cache
_STATE = "attn_state"


def attend(attention: AttentionWithHeads, request: Request) -> Answer | None:
    """Attend with one query per hypothesis; None if there is no kernel, or more is asked for."""
    if request.incremental_state is None or request.attn_mask is not None:
        return None
    asks_scores = request.before_softmax or (request.need_head_weights and attention.scores_of)
    if asks_scores or attention.is_observed():
        return None
    found = _heads_and_probs(attention, request, request.incremental_state)
    if found is None:
        return None
    heads, probs = found
    weights = None if probs is None else request.select_weights(probs.unsqueeze(2))
    return attention.output(heads), weights


@outside_graphs
def _heads_and_probs(
    attention: AttentionWithHeads, request: Request, state: State
) -> tuple[Tensor, Tensor | None] | None:
    """The concatenated heads and their weights by one kernel call, or None with nothing changed."""
    query = request.query
    step = None if _asks_more(attention, request) else kernels.step_for(query)
    cache = None if step is None else _cache_of(attention, request, state)
    if step is None or cache is None or cache.hypotheses != query.size(1):
        return None
    new: tuple[Tensor, Tensor] | None = None
    if isinstance(cache, HypothesesCache):
        new = attention.keys_and_values(query, None, None)
    cached = cache.cached()
    queries = attention.queries(query)
    return step(queries, cached, cache.epsilon, attention.scaling, new, request.wants_weights)


def as_fairseq_reads(attention: AttentionWithHeads, state: State) -> None:
    """Convert the cache of an attention to the form that fairseq's attention writes to."""
    cache: Any = attention.get_incremental_state(state, _STATE)
    if isinstance(cache, Cache):
        attention.set_incremental_state(state, _STATE, {PADDING: None, **cache})


def reorder(attention: AttentionWithHeads, state: State | None, new_order: Tensor) -> bool:
    """Reorder the hypotheses of a cache of this module; return whether there was one."""
    cache: Any = attention.get_incremental_state(state, _STATE)
    if not isinstance(cache, Cache):
        return False
    cache.reorder(new_order)
    return True


def _asks_more(attention: AttentionWithHeads, request: Request) -> bool:
    """Whether the request is for more than the C kernel offers, whatever the device and dtype."""
    query, dropout = request.query, attention.dropout_module
    if attention.self_attention:
        is_other = request.key_padding_mask is not None
    else:
        is_other = not (attention.encoder_decoder_attention and request.static_kv)
    return (
        is_other
        or attention.training
        or (dropout.p > 0 and dropout.apply_during_inference)
        or query.size(0) != 1
        or torch.is_grad_enabled()
        or compat.computing_dtype(query) != query.dtype
        or is_recorded()
    )


def _cache_of(attention: AttentionWithHeads, request: Request, state: State) -> Cache | None:
    """The cache of earlier steps, or a new one in the first; None if they used fairseq's.

    Epsilon, alpha - 1, is computed once per search, during which nothing learns.
    """
    found: Any = attention.get_incremental_state(state, _STATE)
    if found:
        return found if isinstance(found, Cache) else None
    assert attention.mapping is not None
    epsilon, heads = attention.mapping.epsilon(), attention.num_heads
    if epsilon is None:
        return None
    epsilon, hypotheses = epsilon_of_heads(epsilon, heads), request.query.size(1)
    if attention.self_attention:
        empty = request.query.new_empty((hypotheses, heads, 0, attention.head_dim))
        cache: Cache | None = HypothesesCache(empty, empty, epsilon)
    else:
        cache = _of_source(attention, hypotheses, request, epsilon)
    if cache is not None:
        attention.set_incremental_state(state, _STATE, cache)
    return cache


def _of_source(
    attention: AttentionWithHeads, hypotheses: int, request: Request, epsilon: Tensor
) -> SourceCache | None:
    """A new cache of sources; equal neighbours, such as those of a beam, are projected once."""
    key, padding = request.key, request.key_padding_mask
    rows = 0 if key is None else key.size(1)
    if key is None or not rows or hypotheses % rows:
        return None
    padding = padding if padding is not None and padding.dim() else None
    is_again = (key[:, 1:] == key[:, :-1]).all(2).all(0)
    if padding is not None:
        is_again &= (padding[1:] == padding[:-1]).all(1)
    is_first = torch.cat([is_again.new_ones(1), ~is_again])
    origins = (is_first.cumsum(0) - 1).to(torch.int32).repeat_interleave(hypotheses // rows)
    # Contiguous, with the rows of a head next to each other
    keys, values = (
        split_heads(projected, attention.num_heads).contiguous()
        for projected in attention.keys_and_values(request.query, key[:, is_first], None)
    )
    padding = None if padding is None else padding[is_first].float()
    return SourceCache(keys, values, epsilon, padding, origins)
