"""Attention in C for a step of decoding: one query of each hypothesis, and what the steps before left.

The C code is ``decoding.h``. It writes the new key and value into the cache, so that a step is one
call: nothing is concatenated, and nothing moves when hypotheses change their order.
"""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from fairseq_entmax.kernels.inputs import Cached
from fairseq_entmax.kernels.native import library
from fairseq_entmax.kernels.native.rows import supports

__all__ = ["step", "supports"]

# Work that is as much as that of one number of a row of the mapping: numbers of keys and values
_NUMBERS_OF_HEADS = 16


# Step of decoding.h
_STEP = struct.Struct("4lf6P2P3lP2lP")


def step(
    query: Tensor,
    cached: Cached,
    epsilon: Tensor,
    scale: float,
    new: tuple[Tensor, Tensor] | None = None,
    wants_probs: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of one query of each hypothesis, without a gradient.

    The query is ``(1, hypotheses, heads * head_dim)``, and ``epsilon`` ``(heads,)``, dense. ``new`` has
    key and value of the last position, shaped as the query, which are written to the place of the
    hypothesis; it needs the origins of positions.

    Returns:
        The output, shaped as the query, and the probabilities ``(hypotheses, heads, keys)`` or
        None. A query that sees no key gets zeros; others get NaN if their head's epsilon is NaN, or
        NaN or ``+inf`` is among their scores.
    """
    query = query.contiguous()
    hypotheses, heads = cached.origins.size(0), cached.key.size(1)
    output = torch.empty_like(query)
    probs = query.new_empty((hypotheses, heads, cached.number)) if wants_probs else None
    if not cached.number:
        return output.zero_(), probs
    new_key, new_value = (None, None) if new is None else (one.contiguous() for one in new)
    room = cached.origins.size(1) if cached.origins.dim() == 2 else 0
    arguments = _STEP.pack(
        *(hypotheses, heads, cached.number, cached.key.size(3), scale),
        *map(library.address, (epsilon, query, new_key, new_value, output, probs)),
        *(cached.key.data_ptr(), cached.value.data_ptr(), *cached.key.stride()[:3]),
        *(cached.origins.data_ptr(), room, 1 if hypotheses % cached.beam else cached.beam),
        library.address(cached.padding),
    )
    numbers = hypotheses * heads * cached.number * (1 + cached.key.size(3) // _NUMBERS_OF_HEADS)
    parts = -(-hypotheses * heads // library.lanes())
    threads = library.threads_for(numbers, parts)
    library.check(library.library().entmax_attention_step(arguments, threads))
    return output, probs
