"""What kernels share: epsilon of a row, the inputs of attention, how matrices lie in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class ScoreSettings(NamedTuple):
    """What has no gradient, of :meth:`fairseq_entmax.kernels.backends.Attention.attention`."""

    key_padding_mask: Tensor | None = None
    attn_mask: Tensor | None = None
    causal: bool = False
    scale: float = 1.0
    dropout: float = 0.0
    seed: Tensor | None = None


def attention_by(
    apply: Callable[..., Tensor], takes: Callable[[Tensor], bool], taken: str
) -> Callable[..., Tensor]:
    """:meth:`fairseq_entmax.kernels.backends.Attention.attention` of a backend.

    Args:
        apply: of query, key, value, epsilon and :class:`ScoreSettings`, all checked.
        takes: whether it is for such queries.
        taken: for which, to stand behind "query must be" in an error.
    """

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        epsilon: float | Tensor,
        key_padding_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        causal: bool = False,
        scale: float = 1.0,
        dropout: float = 0.0,
        seed: Tensor | None = None,
    ) -> Tensor:
        if query.dim() != 4 or not takes(query):
            raise ValueError(
                f"query must be (batch, heads, queries, head_dim) {taken}, not "
                f"{tuple(query.shape)} in {query.dtype} on {query.device}"
            )
        options = ScoreSettings(key_padding_mask, attn_mask, causal, scale, dropout, seed)
        _check(query, key, value, epsilon, options)
        # Outside of the function, which keeps its inputs for second derivatives
        rows = (dense_rows(tensor) for tensor in (query, key, value))
        return apply(*rows, epsilon, options)

    return attention


def _check(
    query: Tensor, key: Tensor, value: Tensor, epsilon: float | Tensor, options: ScoreSettings
) -> None:
    """Raise ValueError unless all fit a query ``(batch, heads, queries, head_dim)``."""
    key_padding_mask, attn_mask = options[:2]
    _check_dropout(options)
    batch, heads, queries, head_dim = query.shape
    keys = key.size(2) if key.dim() == 4 else 0
    for name, tensor in (("key", key), ("value", value)):
        if tuple(tensor.shape) != (batch, heads, keys, head_dim) or tensor.dtype != query.dtype:
            raise ValueError(
                f"{name} must be ({batch}, {heads}, keys, {head_dim}) in {query.dtype} as query "
                f"is, with as many keys as there are values, not {tuple(tensor.shape)} in "
                f"{tensor.dtype}"
            )
    tensors: dict[str, Tensor] = {"key": key, "value": value}
    if isinstance(epsilon, Tensor):
        check_of_heads(epsilon, "epsilon", heads)
        tensors["epsilon"] = epsilon
    if key_padding_mask is not None:
        if key_padding_mask.shape != (batch, keys) or key_padding_mask.dtype != torch.bool:
            raise ValueError(
                f"key_padding_mask must be ({batch}, {keys}) in torch.bool, not "
                f"{tuple(key_padding_mask.shape)} in {key_padding_mask.dtype}"
            )
        tensors["key_padding_mask"] = key_padding_mask
    if attn_mask is not None:
        if attn_mask.shape != (queries, keys) or not attn_mask.is_floating_point():
            raise ValueError(
                f"attn_mask must be floating point of shape ({queries}, {keys}), not "
                f"{tuple(attn_mask.shape)} in {attn_mask.dtype}"
            )
        if attn_mask.requires_grad:
            raise ValueError("attn_mask takes no gradient, but requires one")
        tensors["attn_mask"] = attn_mask
    for name, tensor in tensors.items():
        if tensor.device != query.device:
            raise ValueError(f"{name} must be on {query.device} as query is, not {tensor.device}")


def _check_dropout(options: ScoreSettings) -> None:
    """Raise ValueError unless a dropout has its seed."""
    if not 0 <= options.dropout < 1:
        raise ValueError(f"dropout must be from 0 to below 1, not {options.dropout}")
    seed = options.seed
    if options.dropout and (
        seed is None
        or seed.shape != (1,)
        or seed.dtype != torch.int64
        or seed.device.type not in ("cpu", "meta")
    ):
        what = "None" if seed is None else f"{tuple(seed.shape)} in {seed.dtype} on {seed.device}"
        raise ValueError(
            f"dropout of {options.dropout} takes a seed of shape (1,) in torch.int64 on cpu, not {what}"
        )


def check_of_heads(parameter: float | Tensor, name: str, heads: int) -> None:
    """Raise ValueError unless a parameter is a number, or fits so many heads."""
    if not isinstance(parameter, Tensor):
        return
    if parameter.numel() not in (1, heads) or not parameter.is_floating_point():
        raise ValueError(
            f"{name} must be a number, or floating point of shape ({heads},), one for each "
            f"head, not {tuple(parameter.shape)} in {parameter.dtype}"
        )


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


def positions_first(like: Tensor) -> Tensor:
    """Empty ``(batch, heads, positions, head_dim)``, positions first in memory, as fairseq's are."""
    batch, heads, positions, head_dim = like.shape
    return like.new_empty((positions, batch, heads, head_dim)).permute(1, 2, 0, 3)


def epsilon_of_rows(
    epsilon: float | Tensor, scores: Tensor, dtype: torch.dtype
) -> tuple[Tensor, int, int]:
    """Epsilon of each row, without a copy for each row where one alpha is of a head.

    Args:
        epsilon: number, or tensor that broadcasts to ``(*scores.shape[:-1], 1)``.
        scores: ``(..., keys)``.
        dtype: of the values.

    Returns:
        ``values``, ``inner`` and the number of values, by which kernels find that of a row:
        ``values[row // inner % len(values)]``.
    """
    inner = 1
    rows = scores.shape[:-1]
    if not isinstance(epsilon, Tensor):
        values = scores.new_full((1,), epsilon, dtype=dtype)
    else:
        values = epsilon.to(scores.device, dtype)
        sizes = (1,) * (scores.dim() - values.dim()) + tuple(values.shape)
        own = [dim for dim, size in enumerate(sizes[:-1]) if size > 1]
        if own:
            first, end = own[0], own[-1] + 1
            if sizes[first:end] == tuple(rows[first:end]):
                inner = rows[end:].numel()
            else:  # it varies along several dimensions apart from each other: one for each row
                values = values.expand(*rows, 1)
        values = values.reshape(-1).contiguous()
    return values, inner, values.numel()
