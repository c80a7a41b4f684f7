"""What kernels share: epsilon of a row, inputs of attention and its cache, how matrices lie in memory."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class ScoreSettings(NamedTuple):
    """What attention is computed by and has no gradient.

    Attributes:
        key_padding_mask: ``(batch, keys)``, bool, true at keys that no query sees.
        attn_mask: ``(queries, keys)``, floating point, added to the scores; ``-inf`` leaves a key out.
        causal: query i sees the keys up to ``i + keys - queries``.
        scale: what scores are multiplied by before masks are added.
        dropout: the probability with which a weight becomes 0, from 0 to below 1; others are
            divided by what is left of 1.
        seed: ``(1,)``, int64, on the CPU: says which (:mod:`fairseq_entmax.kernels.dropout`), the
            same on any backend. Needed with dropout alone.
    """

    key_padding_mask: Tensor | None = None
    attn_mask: Tensor | None = None
    causal: bool = False
    scale: float = 1.0
    dropout: float = 0.0
    seed: Tensor | None = None


class Cached(NamedTuple):
    """Keys and values of a search in their places, all float32 on a CPU.

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


def masked_scores(query: Tensor, key: Tensor, options: ScoreSettings) -> Tensor:
    """The scores that kernels never write: ``(batch, heads, queries, keys)``, float32.

    The padding may be of bytes. What a mask leaves out is ``-inf``, even where its score is NaN.
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
    """The tensor with its last dimension dense in memory."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def split_heads(joined: Tensor, heads: int) -> Tensor:
    """``(positions, batch, heads * head_dim)`` to ``(batch, heads, positions, head_dim)``."""
    positions, batch, width = joined.shape
    return joined.view(positions, batch, heads, width // heads).permute(1, 2, 0, 3)


def join_heads(split: Tensor) -> Tensor:
    """``(batch, heads, positions, head_dim)`` to ``(positions, batch, heads * head_dim)``."""
    return split.permute(2, 0, 1, 3).flatten(2)


def positions_first(like: Tensor) -> Tensor:
    """Empty ``(batch, heads, positions, head_dim)``, positions first in memory, as fairseq's are."""
    batch, heads, positions, head_dim = like.shape
    strides = (heads * head_dim, head_dim, batch * heads * head_dim, 1)
    return like.new_empty_strided((batch, heads, positions, head_dim), strides)


def epsilon_of_heads(epsilon: float | Tensor, heads: int) -> Tensor:
    """Epsilon of each head as the library in C reads it: ``(heads,)``, float32."""
    values = torch.as_tensor(epsilon, dtype=torch.float32)
    return (values if values.shape == (heads,) else values.expand(heads)).contiguous()


def values_of_rows(parameter: float | Tensor, scores: Tensor) -> tuple[Tensor, int, int]:
    """A parameter of each row in float32, without a copy for each row where one is of a head.

    Returns:
        ``values``, ``inner`` and the number of values, by which kernels find that of a row:
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
        else:  # it varies along several dimensions apart from each other: one for each row
            values = values.expand(*rows, 1)
    values = values.reshape(-1).contiguous()
    return values, inner, values.numel()
