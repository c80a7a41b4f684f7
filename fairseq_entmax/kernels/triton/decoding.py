"""Attention of one query a hypothesis, as a decoder asks for it in each step."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.kernels.inputs import (
    ScoreSettings,
    check_of_heads,
    dense_rows,
    masked_scores,
    positions_first,
)
from fairseq_entmax.kernels.triton.attention import takes
from fairseq_entmax.kernels.triton.attention_tiles import block_of
from fairseq_entmax.kernels.triton.decoding_kernels import step_kernel
from fairseq_entmax.kernels.triton.math import kind_of
from fairseq_entmax.kernels.triton.rows import INTERPRETED, on_device, probabilities

__all__ = ["INTERPRETED", "attention_step", "takes"]

# The longest row whose scores a program holds, 64 numbers a thread
MOST_KEYS = 16384
# Of a chunk of keys, and for each warp
_NUMBERS, _NUMBERS_A_WARP = 8192, 2048


class StepTile(NamedTuple):
    """How many chunks of how many keys a program has, and its warps."""

    chunks: int
    lanes: int
    warps: int


def step_tile(keys: int, head_dim: int) -> StepTile:
    """The tile for so many keys, at most :data:`MOST_KEYS`."""
    width = block_of(head_dim)
    lanes = min(block_of(keys), _NUMBERS // width)
    chunks = max(1, block_of(keys) // lanes)
    numbers = max(lanes * width, chunks * lanes)
    return StepTile(chunks, lanes, max(1, numbers // _NUMBERS_A_WARP))


def attention_step(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    epsilon: float | Tensor,
    key_padding_mask: Tensor | None = None,
    scale: float = 1.0,
    wants_probs: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attention of one query for each sentence and head, without a graph.

    Args:
        query: ``(batch, heads, 1, head_dim)``, of any strides.
        key, value: ``(batch, heads, keys, head_dim)``, of any strides, in the dtype of ``query``.
        epsilon: alpha - 1 in [0, 1]: a number, or a tensor of one for all or ``(heads,)``.
        key_padding_mask: ``(batch, keys)``, bool, true at keys that no query sees; or None.
        scale: what scores are multiplied by.
        wants_probs: whether the probabilities are returned.

    Returns:
        ``(batch, heads, 1, head_dim)``, in the dtype of ``query``, and ``(batch, heads, 1, keys)``
        in float32, or None. Zeros where a query sees no key; NaN if the head's epsilon is NaN, or
        NaN or ``+inf`` is among the scores.

    Raises:
        ValueError: shapes or dtypes are not as above, or the device is none for Triton.
    """
    _check(query, key, value, epsilon)
    query, key, value = (dense_rows(tensor.detach()) for tensor in (query, key, value))
    if isinstance(epsilon, Tensor):
        epsilon = epsilon.detach().reshape(-1).to(torch.float32).contiguous()
    batch, heads, _, head_dim = query.shape
    keys = key.size(2)
    if keys > MOST_KEYS:
        return _of_long_rows(query, key, value, epsilon, key_padding_mask, scale, wants_probs)
    output = positions_first(query)
    probs = query.new_empty((batch, heads, 1, keys), dtype=torch.float32) if wants_probs else None
    if not output.numel() or not keys:
        return output.zero_(), probs
    tile = step_tile(keys, head_dim)
    with on_device(query):
        step_kernel[(batch * heads,)](
            *(query, key, value, epsilon if isinstance(epsilon, Tensor) else None),
            *(_bytes(key_padding_mask), output, probs),
            *(*query.stride()[:2], *key.stride()[:3], *value.stride()[:3]),
            *_numbers(epsilon, heads, keys, scale),
            KIND=kind_of(epsilon),
            HEAD_DIM=head_dim,
            BLOCK_D=block_of(head_dim),
            CHUNKS=tile.chunks,
            LANES=tile.lanes,
            num_warps=tile.warps,
            num_stages=1,
        )
    return output, probs


def _check(query: Tensor, key: Tensor, value: Tensor, epsilon: float | Tensor) -> None:
    """Raise ValueError unless the shapes and dtypes are those of :func:`attention_step`."""
    if query.dim() != 4 or query.size(2) != 1 or not takes(query):
        raise ValueError(
            "query must be (batch, heads, 1, head_dim) in float32, float16 or bfloat16 on a CUDA "
            f"device, not {tuple(query.shape)} in {query.dtype} on {query.device}"
        )
    batch, heads, _, head_dim = query.shape
    shape = (batch, heads, key.size(2) if key.dim() == 4 else 0, head_dim)
    for name, tensor in (("key", key), ("value", value)):
        if tuple(tensor.shape) != shape or tensor.dtype != query.dtype:
            raise ValueError(
                f"{name} must be {shape} in {query.dtype}, not {tuple(tensor.shape)} in "
                f"{tensor.dtype}"
            )
    check_of_heads(epsilon, "epsilon", heads)


def _bytes(mask: Tensor | None) -> Tensor | None:
    return None if mask is None else mask.contiguous().view(torch.uint8)


def _numbers(epsilon: float | Tensor, heads: int, keys: int, scale: float) -> tuple[Any, ...]:
    """What the kernel takes behind the strides of the inputs."""
    if isinstance(epsilon, Tensor):
        return int(epsilon.numel() > 1), heads, keys, float(scale), 0.0
    return 0, heads, keys, float(scale), float(epsilon)


def _of_long_rows(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    epsilon: float | Tensor,
    key_padding_mask: Tensor | None,
    scale: float,
    wants_probs: bool,
) -> tuple[Tensor, Tensor | None]:
    """The same of rows that no program holds, with scores in memory: they are of one query."""
    settings = ScoreSettings(key_padding_mask, scale=scale)
    of_rows = epsilon.view(-1, 1, 1) if isinstance(epsilon, Tensor) else epsilon
    probs = probabilities(masked_scores(query, key, settings), of_rows)
    output = positions_first(query).copy_(probs.to(value.dtype) @ value)
    return output, probs if wants_probs else None
