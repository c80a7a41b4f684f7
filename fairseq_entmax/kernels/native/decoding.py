"""Attention in C for a step of decoding: one query of each hypothesis, and what the steps before left.

The C code is ``decoding.h``. It writes the new key and value into the cache, so that a step is one
call: nothing is concatenated, and nothing moves when hypotheses change their order.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.kernels.native import library
from fairseq_entmax.kernels.native.attention import takes

__all__ = ["Cached", "step", "takes"]

# Work that is as much as that of one number of a row of the mapping: numbers of keys and values
_NUMBERS_OF_HEADS = 16


class Cached(NamedTuple):
    """Keys and values in their places, all float32 on a CPU.

    Attributes:
        key, value: ``(places, heads, room, head_dim)``, of the same strides, the
            last dimension dense.
        number: how many positions there are, with the new one if there is one.
        origins: int32, dense: the place of each hypothesis, ``(hypotheses,)``; or of each of its
            positions, ``(hypotheses, room)``, which the new one is written to.
        padding: ``(places, number)``, dense, float32, not 0 at keys that no query sees; or None, as
            where the origins are those of positions.
        beam: how many hypotheses in a row are likely to have most of their places in common.
    """

    key: Tensor
    value: Tensor
    number: int
    origins: Tensor
    padding: Tensor | None = None
    beam: int = 1


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_long) for name in ("hypotheses", "heads", "keys", "size")),
        ("scale", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("epsilon", "query", "new_key", "new_value")),
        *((name, ctypes.c_void_p) for name in ("output", "probs")),
        *((name, ctypes.c_void_p) for name in ("key", "value")),
        *((name, ctypes.c_long) for name in ("place", "head", "row")),
        ("origins", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("room", "beam")),
        ("padding", ctypes.c_void_p),
    )


def step(
    query: Tensor,
    cached: Cached,
    epsilon: Tensor,
    scale: float,
    new: tuple[Tensor, Tensor] | None = None,
    wants_probs: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of one query of each hypothesis, ``(hypotheses, heads * head_dim)``, without a gradient.

    ``epsilon`` is ``(heads,)``, dense. ``new`` has key and value of the last position, shaped as the
    query, which are written to the place of the hypothesis; it needs the origins of positions.

    Returns:
        ``(hypotheses, heads * head_dim)``, and the probabilities ``(hypotheses, heads, keys)`` or
        None. A query that sees no key gets zeros; others get NaN if their head's epsilon is NaN, or
        NaN or ``+inf`` is among their scores.
    """
    query = query.contiguous()
    hypotheses, heads = query.size(0), cached.key.size(1)
    output = torch.empty_like(query)
    probs = query.new_empty((hypotheses, heads, cached.number)) if wants_probs else None
    if not cached.number:
        return output.zero_(), probs
    new_key, new_value = (None, None) if new is None else (one.contiguous() for one in new)
    room = cached.origins.size(1) if cached.origins.dim() == 2 else 0
    # Alive until the call is over
    arguments = _Step(
        *(hypotheses, heads, cached.number, cached.key.size(3), scale),
        *(library.address(one) for one in (epsilon, query, new_key, new_value, output, probs)),
        *(cached.key.data_ptr(), cached.value.data_ptr(), *cached.key.stride()[:3]),
        *(cached.origins.data_ptr(), room, 1 if hypotheses % cached.beam else cached.beam),
        library.address(cached.padding),
    )
    numbers = hypotheses * heads * cached.number * (1 + cached.key.size(3) // _NUMBERS_OF_HEADS)
    parts = -(-hypotheses * heads // library.lanes())
    threads = library.threads_for(numbers, parts)
    library.check(library.library().entmax_attention_step(ctypes.addressof(arguments), threads))
    return output, probs
