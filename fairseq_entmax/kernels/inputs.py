"""What kernels share: parameters of rows, inputs and cache of attention, and memory layouts."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class ScoreSettings(NamedTuple):
    """The settings of attention, which have no gradient.

    Attributes:
        key_padding_mask: ``(batch, keys)``, bool, true at keys that no query sees.
        attn_mask: ``(queries, keys)``, floating point, added to the scores; ``-inf`` masks a key.
        causal: whether query i only sees the keys up to ``i + keys - queries``.
        scale: multiplies the scores before masks are added.
        dropout: the probability that a weight becomes 0, from 0 to below 1; the others are divided
            by ``1 - dropout``.
        seed: ``(1,)``, int64, on the CPU: decides which weights are dropped, the same ones on any
            backend (:mod:`fairseq_entmax.kernels.dropout`). Only needed with dropout.
    """

    key_padding_mask: Tensor | None = None
    attn_mask: Tensor | None = None
    causal: bool = False
    scale: float = 1.0
    dropout: float = 0.0
    seed: Tensor | None = None


class Cached(NamedTuple):
    """The keys and values that a beam search has cached, all float32 on a CPU.

    Attributes:
        key, value: ``(places, heads, room, head_dim)``, with the same strides and a dense last
            dimension.
        number: how many positions there are, including the new one, if any.
        origins: int32, dense: the place of each hypothesis, ``(hypotheses,)``; or of each of its
            positions, ``(hypotheses, room)``, where that of the new position is filled in.
        padding: ``(places, number)``, dense, float32, not 0 at keys that no query sees; or None, as
            it must be if origins are those of positions.
        beam: how many consecutive hypotheses are likely to have most of their places in common.
    """

    key: Tensor
    value: Tensor
    number: int
    origins: Tensor
    padding: Tensor | None = None
    beam: int = 1


def masked_scores(query: Tensor, key: Tensor, options: ScoreSettings) -> Tensor:
    """The masked scores, which kernels never store: ``(batch, heads, queries, keys)``, float32.

    The padding mask may be bytes. A masked key gets ``-inf``, even if its score is NaN.
    """
    key_padding_mask, attn_mask, causal, scale = options[:4]
    scores = scale * (query.float() @ key.float().mT)
    if attn_mask is not None:
        scores = (scores + attn_mask.float()).masked_fill_(attn_mask == -torch.inf, -torch.inf)
    if key_padding_mask is not None:
        scores = scores.masked_fill(key_padding_mask.bool()[:, None, None], -torch.inf)
    if causal:
        queries, keys = scores.shape[-2:]
        future = scores.new_ones((queries, keys), dtype=torch.bool).triu(1 + keys - queries)
        scores = scores.masked_fill(future, -torch.inf)
    return scores


def dense_rows(tensor: Tensor) -> Tensor:
    """The tensor, or a copy if its last dimension is not dense in memory."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def split_heads(joined: Tensor, heads: int) -> Tensor:
    """``(positions, batch, heads * head_dim)`` to ``(batch, heads, positions, head_dim)``."""
    positions, batch, width = joined.shape
    return joined.view(positions, batch, heads, width // heads).permute(1, 2, 0, 3)


def join_heads(split: Tensor) -> Tensor:
    """``(batch, heads, positions, head_dim)`` to ``(positions, batch, heads * head_dim)``."""
    return split.permute(2, 0, 1, 3).flatten(2)


def positions_first(like: Tensor) -> Tensor:
    """An empty ``(batch, heads, positions, head_dim)``, positions first in memory as in fairseq."""
    batch, heads, positions, head_dim = like.shape
    strides = (heads * head_dim, head_dim, batch * heads * head_dim, 1)
    return like.new_empty_strided((batch, heads, positions, head_dim), strides)


def epsilon_of_heads(epsilon: float | Tensor, heads: int) -> Tensor:
    """The epsilon of each head as the C library reads it: ``(heads,)``, float32."""
    values = torch.as_tensor(epsilon, dtype=torch.float32, device="cpu")
    return values.expand(heads).contiguous()


def values_of_rows(parameter: float | Tensor, scores: Tensor) -> tuple[Tensor, int, int]:
    """The parameter of each row in float32, without copies for the rows of a head that share it.

    Returns:
        ``values``, ``inner`` and the number of values. The parameter of a row is
        ``values[row // inner % len(values)]``.
    """
    inner = 1
    rows = scores.shape[:-1]
    if not isinstance(parameter, Tensor):
        return scores.new_full((1,), parameter, dtype=torch.float32), inner, 1
    values = parameter.to(scores.device, torch.float32)
    sizes = (1,) * (scores.dim() - values.dim()) + tuple(values.shape)
    varying = [dim for dim, size in enumerate(sizes[:-1]) if size > 1]
    if varying:
        first, end = varying[0], varying[-1] + 1
        if sizes[first:end] == tuple(rows[first:end]):
            inner = rows[end:].numel()
        else:  # it varies along dimensions that are not adjacent: one value per row
            values = values.expand(*rows, 1)
    values = values.reshape(-1).contiguous()
    return values, inner, values.numel()
