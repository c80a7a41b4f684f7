"""Attention in C for a step of decoding: one query per hypothesis, and the cache of earlier steps.

The C code is ``decoding.h``. It writes the new key and value into the cache, so that a step is one
call: nothing is concatenated, and nothing moves when hypotheses are reordered.
"""

from __future__ import annotations

import struct

import torch
from torch import Tensor

from fairseq_entmax.kernels.inputs import Cached
from fairseq_entmax.kernels.native import library
from fairseq_entmax.kernels.native.rows import supports

__all__ = ["step", "supports"]

# So many numbers of a key and value are as much work as one number of a row of the mapping
_NUMBERS_OF_HEADS = 16


# The Step struct of decoding.h
_STEP = struct.Struct("4lf6P2P3lP2lP")


def step(
    query: Tensor,
    cached: Cached,
    epsilon: Tensor,
    scale: float,
    new: tuple[Tensor, Tensor] | None = None,
    wants_probs: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of one query per hypothesis, without a gradient.

    The query is ``(1, hypotheses, heads * head_dim)``; ``epsilon`` is ``(heads,)``, dense. ``new``
    has the key and value of the last position, shaped like the query. They are written to the place
    of the hypothesis, which requires origins for each position.

    Returns:
        The output, shaped like the query, and the probabilities ``(hypotheses, heads, keys)`` or
        None. A query that sees no key gets zeros. Any other gets NaN if its head's epsilon is NaN,
        or if one of its scores is NaN or ``+inf``.
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
