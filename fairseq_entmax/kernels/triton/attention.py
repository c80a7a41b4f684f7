"""Alpha-entmax attention in one piece: scores and probabilities never reach memory.

    output = alpha-entmax(scale * query key^T + masks) value

Forward, a row's threshold is found in registers where all its keys fit there; longer rows are
computed anew, block by block, in each step of Newton's iteration. What is kept for the backward
pass is the output, the largest score and the threshold of each row. Backward, probabilities are
computed from these, once for the gradients of queries and alpha, once for those of keys and
values. No sum depends on the order in which programs run: results are the same each time.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from fairseq_entmax.kernels import derivatives
from fairseq_entmax.kernels.attention_inputs import (
    check,
    dense_rows,
    masked_scores,
    positions_first,
)
from fairseq_entmax.kernels.triton.attention_backward import (
    backward_keys_kernel,
    backward_queries_kernel,
)
from fairseq_entmax.kernels.triton.attention_forward import forward_kernel
from fairseq_entmax.kernels.triton.math import kind_of
from fairseq_entmax.kernels.triton.rows import (
    DTYPES,
    INTERPRETED,
    on_device,
    probabilities,
)

LARGEST_HEAD_DIM = 256
# Up to so many keys, and bytes of them, a program holds all keys of a sentence
MOST_KEYS_IN_REGISTERS = 256
MOST_BYTES_OF_KEYS = 65536
LONG_BLOCK = 64


# Shared memory that a program takes, in KiB, by the bytes of a row of a head: the most that
# compiling for compute capability 8.0 showed, for any length
KIB_OF_ROWS = {256: 80, 512: 96, 1024: 192}


@functools.cache
def _has_room(device: torch.device, row_bytes: int) -> bool:
    """Whether the programs for such rows fit a GPU, which is to be one of Nvidia's since 2020."""
    properties = torch.cuda.get_device_properties(device)
    needed = next(kib for most, kib in KIB_OF_ROWS.items() if row_bytes <= most)
    room = getattr(properties, "shared_memory_per_block_optin", 0)
    return torch.version.hip is None and properties.major >= 8 and room >= needed * 1024


def takes(query: Tensor) -> bool:
    """Whether :func:`attention` is for queries of this device, dtype and shape."""
    return (
        type(query) in (Tensor, torch.nn.Parameter)
        and (query.is_cuda or (INTERPRETED and query.device.type == "cpu"))
        and query.dtype in DTYPES
        and query.dim() == 4
        and 1 <= query.size(-1) <= LARGEST_HEAD_DIM
        and (INTERPRETED or _has_room(query.device, _block(query.size(-1)) * query.element_size()))
        and query.layout == torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(query)
    )


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    epsilon: float | Tensor,
    key_padding_mask: Tensor | None = None,
    attn_mask: Tensor | None = None,
    causal: bool = False,
    scale: float = 1.0,
) -> Tensor:
    """Attend with alpha-entmax; differentiable in the first four arguments, to any order.

    Args:
        query: ``(batch, heads, queries, head_dim)``, float32, float16 or bfloat16, head_dim up
            to 256, of any strides. Halves are multiplied into float32.
        key, value: ``(batch, heads, keys, head_dim)``, of the dtype of ``query``.
        epsilon: alpha - 1 in [0, 1]: a number, or a tensor of one for all or ``(heads,)``. The
            values of a tensor are not looked at.
        key_padding_mask: ``(batch, keys)``, bool, true at keys that no query sees.
        attn_mask: ``(queries, keys)``, floating point, added to the scores; takes no gradient.
        causal: query i sees the keys up to ``i + keys - queries``: what a mask of ``-inf`` above
            the diagonal does, without reading one, and without computing what it hides.
        scale: what scores are multiplied by before masks are added.

    Returns:
        ``(batch, heads, queries, head_dim)``, in the dtype of ``query``; in memory the order is
        (queries, batch, heads, head_dim). A query that sees no key gets zeros and gives no
        gradients; others get NaN if their head's epsilon is NaN, or NaN or ``+inf`` is among
        their scores.

    Raises:
        ValueError: shapes, dtypes or devices are not as above.

    Source:
        Correia, Niculae, Martins 2019, *Adaptively Sparse Transformers*, eq. 5 to 7 and
        Proposition 1; computing blocks of scores anew: Dao et al. 2022, *FlashAttention*.
    """
    if not takes(query):
        raise ValueError(
            "query must be (batch, heads, queries, head_dim) with a head_dim of 1 to "
            f"{LARGEST_HEAD_DIM}, in float32, float16 or bfloat16 on a CUDA device, not "
            f"{tuple(query.shape)} in {query.dtype} on {query.device}"
        )
    check(query, key, value, epsilon, key_padding_mask, attn_mask)
    # Outside of the function, which keeps its inputs for second derivatives
    query, key, value = (dense_rows(tensor) for tensor in (query, key, value))
    output: Tensor = _Attention.apply(
        query, key, value, epsilon, key_padding_mask, attn_mask, causal, scale
    )
    return output


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        epsilon: float | Tensor,
        key_padding_mask: Tensor | None,
        attn_mask: Tensor | None,
        causal: bool,
        scale: float,
    ) -> Tensor:
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.contiguous().view(torch.uint8)
        if attn_mask is not None:
            attn_mask = dense_rows(attn_mask)
        values = _epsilon_of_heads(epsilon, query)
        output = positions_first(query)
        top = query.new_empty(query.shape[:3], dtype=torch.float32)
        tau = torch.empty_like(top)
        is_tensor = isinstance(epsilon, Tensor)
        ctx.epsilon, ctx.causal, ctx.scale = None if is_tensor else epsilon, causal, scale
        if output.numel() and key.size(2):
            tile = forward_tile(query.size(2), key.size(2), query.size(3), query.element_size())
            blocks = triton.cdiv(query.size(2), tile.queries)
            with on_device(query):
                forward_kernel[(blocks * top.shape[:2].numel(),)](
                    query,
                    key,
                    value,
                    values,
                    key_padding_mask,
                    attn_mask,
                    output,
                    top,
                    tau,
                    *_numbers(query, key, value, values, attn_mask, scale),
                    **_constants(query, epsilon, causal, tile),
                    WHOLE=tile.whole,
                )
        else:
            output.zero_()
        ctx.save_for_backward(
            *(query, key, value, epsilon if is_tensor else None, values),
            *(key_padding_mask, attn_mask, output, top, tau),
        )
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, given, values, *rest = ctx.saved_tensors
        key_padding_mask, attn_mask, output, top, tau = rest
        epsilon = values if ctx.epsilon is None else ctx.epsilon
        if derivatives.are_wanted(grad):
            with torch.no_grad():
                masks = (key_padding_mask, attn_mask, ctx.causal)
                scores = masked_scores(query, key, *masks, ctx.scale)
                probs = probabilities(scores, epsilon if given is None else values.view(-1, 1, 1))
            four = (query, key, value, epsilon if given is None else given)
            return *derivatives.attention_gradients(*four, probs, grad, ctx.scale), *(None,) * 4
        for_query, for_key, for_value, for_alpha = ctx.needs_input_grad[:4]
        # As the output lies in memory
        grad = grad.permute(2, 0, 1, 3).contiguous().permute(1, 2, 0, 3)
        grads = [positions_first(tensor) for tensor in (query, key, value)]
        rows = torch.zeros_like(top) if for_alpha else None
        if not (output.numel() and key.size(2)):
            for tensor in grads:
                tensor.zero_()
        else:
            middle = torch.empty_like(top)
            numbers = _numbers(query, key, value, values, attn_mask, ctx.scale)
            tile = backward_tile(query.size(2), key.size(2), query.size(3), query.element_size())
            constants = _constants(query, epsilon, ctx.causal, tile)
            inputs = (query, key, value, values, key_padding_mask, attn_mask)
            pairs = top.shape[:2].numel()
            with on_device(query):
                backward_queries_kernel[(triton.cdiv(query.size(2), tile.queries) * pairs,)](
                    *inputs, output, top, tau, grad, middle, grads[0], rows, *numbers,
                    FOR_ALPHA=for_alpha, **constants,
                )  # fmt: skip
                if for_key or for_value:
                    backward_keys_kernel[(triton.cdiv(key.size(2), tile.keys) * pairs,)](
                        *inputs, top, tau, grad, middle, grads[1], grads[2], *numbers, **constants
                    )
        grad_epsilon = None
        if rows is not None:
            one_each = rows.sum((0, 2), dtype=torch.float64)
            # A single epsilon is shared by all heads
            shared = values.numel() == 1
            grad_epsilon = (one_each.sum() if shared else one_each).view(given.shape)
            grad_epsilon = grad_epsilon.to(given.dtype)
        return (
            grads[0] if for_query else None,
            grads[1] if for_key else None,
            grads[2] if for_value else None,
            grad_epsilon,
            *(None,) * 4,
        )


class Tile(NamedTuple):
    """Queries and keys of a program's block, its warps, and the depth of its pipeline."""

    queries: int
    keys: int
    warps: int
    stages: int
    whole: bool


def forward_tile(queries: int, keys: int, head_dim: int, item_bytes: int) -> Tile:
    """The block of the forward kernel; with ``whole`` it has all keys.

    Sizes are the largest with which the compiler for an H100 keeps a tile in registers, or nearly
    so: its report of what it spills, not a timing, chose them.
    """
    width, block, is_wide = _block(head_dim), _block(keys), item_bytes > 2
    most = MOST_KEYS_IN_REGISTERS // 2 if is_wide else MOST_KEYS_IN_REGISTERS
    whole = block <= most and block * width * item_bytes <= MOST_BYTES_OF_KEYS
    if not whole:
        block = LONG_BLOCK if width * item_bytes <= 512 else LONG_BLOCK // 2
    rows = 64
    if is_wide and whole and block * width * item_bytes == MOST_BYTES_OF_KEYS:
        rows = 16
    elif block > (64 if is_wide else 128) or width * item_bytes >= 512:
        rows = 32
    rows = min(rows, _block(queries))
    warps = 8 if block > 64 or width * item_bytes >= 512 else _warps(rows, max(block, width))
    # Two blocks of keys and values at a time only where they leave room for other programs
    return Tile(rows, block, warps, 2 if width * item_bytes <= 256 else 1, whole)


def backward_tile(queries: int, keys: int, head_dim: int, item_bytes: int) -> Tile:
    """The block of both backward kernels."""
    width = _block(head_dim)
    most = LONG_BLOCK if width * item_bytes <= 128 else LONG_BLOCK // 2
    rows, block = min(_block(queries), most), min(_block(keys), most)
    warps = 8 if width * item_bytes >= 512 or rows * block > 2048 else 4
    return Tile(rows, block, warps, 1, False)


def _block(length: int) -> int:
    """A power of two, and at least the 16 that the tensor cores multiply."""
    return max(16, int(triton.next_power_of_2(length)))


def _warps(rows: int, columns: int) -> int:
    return 2 if rows * columns <= 2048 else 4


def _epsilon_of_heads(epsilon: float | Tensor, query: Tensor) -> Tensor:
    if isinstance(epsilon, Tensor):
        return epsilon.detach().reshape(-1).to(torch.float32).contiguous()
    return query.new_full((1,), epsilon, dtype=torch.float32)


def _numbers(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    epsilon: Tensor,
    attn_mask: Tensor | None,
    scale: float,
) -> tuple[int | float, ...]:
    """What every kernel takes after its pointers."""
    batch, heads = query.shape[:2]
    return (
        *query.stride()[:3],
        *key.stride()[:3],
        *value.stride()[:3],
        int(epsilon.numel() > 1),
        0 if attn_mask is None else attn_mask.stride(0),
        heads,
        batch * heads,
        query.size(2),
        key.size(2),
        float(scale),
    )


def _constants(query: Tensor, epsilon: float | Tensor, causal: bool, tile: Tile) -> dict[str, Any]:
    """What every kernel is compiled for."""
    exact = torch.get_float32_matmul_precision() == "highest"
    return {
        "KIND": kind_of(epsilon),
        "CAUSAL": causal,
        # Three products of 19-bit numbers give what one of float32 gives
        "PRECISION": "ieee" if INTERPRETED else "tf32x3" if exact else "tf32",
        "HEAD_DIM": query.size(3),
        "BLOCK_D": _block(query.size(3)),
        "BLOCK_M": tile.queries,
        "BLOCK_N": tile.keys,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
