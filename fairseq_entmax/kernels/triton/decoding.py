"""Attention of one query a hypothesis, as a decoder asks for it in each step.

A program has one head of one sentence. Its scores stay in registers, a chunk of keys after the
other is multiplied with the query, and of the values only those in the support are read. A tile of
queries for the tensor cores would be empty but for one row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from fairseq_entmax.kernels.inputs import (
    ScoreSettings,
    check_of_heads,
    dense_rows,
    masked_scores,
    positions_first,
)
from fairseq_entmax.kernels.triton.attention import takes
from fairseq_entmax.kernels.triton.attention_forward import epsilon_of, load, position_and_inside
from fairseq_entmax.kernels.triton.attention_tiles import block_of
from fairseq_entmax.kernels.triton.math import (
    ANY,
    LOG2_E,
    any_for,
    at_least,
    kind_of,
    max_keys,
    numbers_of,
    of_rows,
    or_without,
    share_of,
    solve,
)
from fairseq_entmax.kernels.triton.rows import on_device, probabilities

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


@triton.jit(do_not_specialize=["keys"])
def step_kernel(
    query_ptr, key_ptr, value_ptr, epsilon_ptr, padding_ptr, output_ptr, probs_ptr,
    query_batch, query_head, key_batch, key_head, key_row,
    value_batch, value_head, value_row, epsilon_head, heads, keys, scale, epsilon_number,
    KIND: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    CHUNKS: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """Output of one query; rows of scores are ``(CHUNKS, 1, LANES)``.

    The output lies in memory as ``(batch, heads, head_dim)``, the probabilities as ``(batch, heads,
    keys)``. Epsilon is the number where there is no ``epsilon_ptr``.
    """
    pair = tl.program_id(0).to(tl.int64)
    batch, head = pair // heads, pair % heads
    key_ptr += batch * key_batch + head * key_head
    value_ptr += batch * value_batch + head * value_head
    if padding_ptr is not None:
        padding_ptr += batch * keys
    dim = tl.arange(0, BLOCK_D)
    lane = tl.arange(0, LANES)
    chunk = tl.arange(0, CHUNKS)[:, None, None]
    query_ptr += batch * query_batch + head * query_head
    query = tl.load(query_ptr + dim, mask=dim < HEAD_DIM, other=0.0).to(tl.float32)

    scores = tl.full([CHUNKS, 1, LANES], float("-inf"), tl.float32)
    for start in range(0, keys, LANES):
        column = start + lane
        key = load(key_ptr, column, key_row, keys, HEAD_DIM, BLOCK_D).to(tl.float32)
        of_chunk = tl.sum(key * query[None, :], axis=1) * scale
        visible = column < keys
        if padding_ptr is not None:
            visible = visible & (tl.load(padding_ptr + column, mask=visible, other=1) == 0)
        of_chunk = tl.where(visible, of_chunk, float("-inf"))
        scores = tl.where(chunk == start // LANES, of_chunk[None, None, :], scores)

    if KIND == ANY and epsilon_ptr is None:
        given = tl.zeros([1], tl.float32) + at_least(epsilon_number)
    else:
        given = epsilon_of(epsilon_ptr, epsilon_head, head, 1, KIND)
    epsilon = any_for(given)
    scores, broken = numbers_of(scores)
    top = max_keys(scores)
    broken = or_without(broken, given, top)
    # In a row with every key masked all differences are -inf
    top = tl.where(top == float("-inf"), float("inf"), top)
    # A tensor times a constant: of the quotient the interpreter makes a constant
    inverse = (1.0 / epsilon) * LOG2_E
    _, p, total = solve(scores - of_rows(top, scores), epsilon, inverse, KIND)
    p *= of_rows(share_of(total, broken), p)
    if probs_ptr is not None:
        column = chunk * LANES + lane[None, None, :]
        tl.store(probs_ptr + pair * keys + column, p, mask=column < keys)

    output = tl.zeros([BLOCK_D], tl.float32)
    for start in range(0, keys, LANES):
        # The sum of one number and zeros
        weights = tl.sum(tl.sum(tl.where(chunk == start // LANES, p, 0.0), axis=0), axis=0)
        at, inside = position_and_inside(start + lane, value_row, keys, HEAD_DIM, BLOCK_D)
        inside = inside & (weights != 0.0)[:, None]
        value = tl.load(value_ptr + at, mask=inside, other=0.0).to(tl.float32)
        output += tl.sum(value * weights[:, None], axis=0)
    output_ptr += pair * HEAD_DIM + dim
    tl.store(output_ptr, output.to(query_ptr.dtype.element_ty), mask=dim < HEAD_DIM)


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
    of_tensor = isinstance(epsilon, Tensor)
    step = int(of_tensor and epsilon.numel() > 1)  # type: ignore[union-attr]
    return step, heads, keys, float(scale), 0.0 if of_tensor else float(epsilon)


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
