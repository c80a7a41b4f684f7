"""A step of decoding: one query of each hypothesis, and the cache that earlier steps left.

fairseq's attention concatenates the cache anew in each step, and selects from it where hypotheses
change their order. Here keys and values stay where they were written, and one call of a kernel does
the rest, where there is a kernel. What reads the cache finds it in fairseq's form all the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairseq_entmax import compat, kernels
from fairseq_entmax.attention.base import AttentionWithHeads
from fairseq_entmax.attention.kv_cache import PADDING, HypothesesCache, SourceCache
from fairseq_entmax.attention.request import Answer, Request
from fairseq_entmax.kernels.inputs import Cached, epsilon_of_heads
from fairseq_entmax.kernels.tracing import is_recorded, outside_graphs

State = dict[str, dict[str, Any]]

# Names of fairseq's, and of what a search goes by as long as it lasts
_STATE, _SETTINGS = "attn_state", "attn_step"


def attend(attention: AttentionWithHeads, request: Request) -> Answer | None:
    """One query of each hypothesis; None where there is no kernel, or more is asked for."""
    if request.incremental_state is None or request.attn_mask is not None:
        return None
    asks_scores = request.before_softmax or (request.need_head_weights and attention.scores_of)
    if asks_scores or attention.is_watched():
        return None
    found = _heads_and_probs(attention, request, request.incremental_state)
    if found is None:
        return None
    return attention.output(found[0]), request.select_weights(found[1])


@outside_graphs
def _heads_and_probs(
    attention: AttentionWithHeads, request: Request, state: State
) -> tuple[Tensor, Tensor | None] | None:
    """The heads and their weights, in one call of a kernel; None changes nothing."""
    query = request.query
    if _asks_more(attention, query):
        return None
    epsilon = _epsilon_of(attention, query, state)
    step = None if epsilon is None else kernels.step_for(query)
    if step is None:
        return None
    cached: Cached | None = None
    new: tuple[Tensor, Tensor] | None = None
    projected = attention.q_proj(query)[0]
    if attention.encoder_decoder_attention and request.static_kv:
        cached = _of_source(attention, len(projected), request, state)
    elif attention.self_attention and request.key_padding_mask is None:
        cached = _of_hypotheses(attention, projected, state)
        new = attention.k_proj(query)[0], attention.v_proj(query)[0]
    if cached is None:
        return None
    output, probs = step(projected, cached, epsilon, attention.scaling, new, request.wants_weights)
    heads = output.view(len(output), attention.num_heads, 1, -1)
    return heads, None if probs is None else probs.unsqueeze(2)


def as_fairseq_reads(attention: AttentionWithHeads, state: State) -> None:
    """Give the cache of an attention the form that fairseq's own writes to."""
    cache = attention.get_incremental_state(state, _STATE)
    if isinstance(cache, HypothesesCache | SourceCache):
        attention.set_incremental_state(state, _STATE, {PADDING: None, **cache})


def reorder(attention: AttentionWithHeads, state: State | None, new_order: Tensor) -> bool:
    """Select hypotheses, if they have a cache of this module's."""
    cache = None if state is None else attention.get_incremental_state(state, _STATE)
    if not isinstance(cache, HypothesesCache | SourceCache):
        return False
    cache.reorder(new_order)
    return True


def _asks_more(attention: AttentionWithHeads, query: Tensor) -> bool:
    """Whether more is asked for than kernels do."""
    dropout = attention.dropout_module
    drops = attention.training or (dropout.p > 0 and dropout.apply_during_inference)
    has_more_keys = attention.bias_k is not None or attention.add_zero_attn
    return drops or has_more_keys or query.size(0) != 1 or torch.is_grad_enabled()


def _epsilon_of(attention: AttentionWithHeads, query: Tensor, state: State) -> Tensor | None:
    """alpha - 1 of each head, where the kernel in C would do all that is asked for.

    It is worked out once a search, in which nothing learns.
    """
    is_float32 = query.dtype == torch.float32 == compat.computing_dtype(query)
    if not is_float32 or query.device.type != "cpu" or is_recorded():
        return None
    settings: dict[str, Any] | None = attention.get_incremental_state(state, _SETTINGS)
    if settings is None:
        assert attention.mapping is not None
        epsilon = attention.mapping.fused()
        heads = attention.num_heads
        settings = {"of_heads": None if epsilon is None else epsilon_of_heads(epsilon, heads)}
        attention.set_incremental_state(state, _SETTINGS, settings)
    found: Tensor | None = settings["of_heads"]
    return found


def _of_hypotheses(attention: AttentionWithHeads, query: Tensor, state: State) -> Cached | None:
    """The cache of self-attention, with room for one more position."""
    cache = attention.get_incremental_state(state, _STATE)
    if not isinstance(cache, HypothesesCache):
        if cache:  # of steps that went fairseq's way
            return None
        empty = query.new_empty((len(query), attention.num_heads, 0, attention.head_dim))
        cache = HypothesesCache(empty, empty)
    if cache.hypotheses != len(query):
        return None
    attention.set_incremental_state(state, _STATE, cache)
    return cache.with_room(attention.beam_size)


def _of_source(
    attention: AttentionWithHeads, hypotheses: int, request: Request, state: State
) -> Cached | None:
    """Keys and values of the source, projected in the first step."""
    cache = attention.get_incremental_state(state, _STATE)
    if not cache and request.key is not None:
        cache = _projected(attention, hypotheses, request.key, request.key_padding_mask)
    if not isinstance(cache, SourceCache) or cache.hypotheses != hypotheses:
        return None
    attention.set_incremental_state(state, _STATE, cache)
    return cache.cached()


def _projected(
    attention: AttentionWithHeads, hypotheses: int, key: Tensor, padding: Tensor | None
) -> SourceCache | None:
    """A cache of sources; those that are the same, as of a beam, are projected once."""
    rows = key.size(1)
    if not rows or hypotheses % rows:
        return None
    padding = padding if padding is not None and padding.dim() else None
    is_again = (key[:, 1:] == key[:, :-1]).all(2).all(0)
    if padding is not None:
        is_again &= (padding[1:] == padding[:-1]).all(1)
    is_first = torch.cat([is_again.new_ones(1), ~is_again])
    origins = (is_first.cumsum(0) - 1).to(torch.int32).repeat_interleave(hypotheses // rows)
    sources = key[:, is_first]
    shape = (*sources.shape[:2], attention.num_heads, attention.head_dim)
    # Rows of a head side by side
    keys, values = (
        projection(sources).view(shape).permute(1, 2, 0, 3).contiguous()
        for projection in (attention.k_proj, attention.v_proj)
    )
    padding = None if padding is None else padding[is_first].float()
    # As fairseq has it, once the size of the beam is set
    beam = attention.beam_size if rows == hypotheses else hypotheses // rows
    return SourceCache(keys, values, padding, origins, beam)
