"""Attention as a differentiable function: the code that all backends share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.kernels import dropout, functions, torch_structured
from fairseq_entmax.kernels.inputs import (
    ScoreSettings,
    dense_rows,
    join_heads,
    masked_scores,
    split_heads,
)
from fairseq_entmax.kernels.structure import PLAIN


class Inputs(NamedTuple):
    """The inputs of attention.

    Attributes:
        query, key, value: ``(batch, heads, positions, head_dim)``, with dense rows.
        epsilon: alpha - 1: a number, ``(1,)`` or ``(heads,)``.
        settings: masks, scale and dropout.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    epsilon: float | Tensor
    settings: ScoreSettings

    def sizes(self) -> tuple[int, int, int, int, int]:
        """The numbers of sentences, heads, queries and keys, and ``head_dim``."""
        sentences, heads, queries, head_dim = self.query.shape
        return sentences, heads, queries, self.key.size(2), head_dim

    def check(self) -> None:
        """Raise ValueError unless all inputs fit the query: kernels read memory by its sizes."""
        query, key, value, epsilon, settings = self
        batch, heads, queries, keys, head_dim = self.sizes()
        padding, mask, seed = settings.key_padding_mask, settings.attn_mask, settings.seed
        fits = (
            key.shape == value.shape == (batch, heads, keys, head_dim)
            and key.dtype == value.dtype == query.dtype
            and (not isinstance(epsilon, Tensor) or epsilon.numel() in (1, heads))
            and (
                padding is None or (padding.shape == (batch, keys) and padding.dtype == torch.bool)
            )
            and (mask is None or (mask.shape == (queries, keys) and mask.is_floating_point()))
            and (not settings.dropout or (seed is not None and seed.dtype == torch.int64))
            and key.device == value.device == query.device
            and (padding is None or padding.device == query.device)
            and (mask is None or mask.device == query.device)
        )
        if not fits:
            shapes = [
                f"{tuple(x.shape)} in {x.dtype} on {x.device}"
                for x in (query, key, value, epsilon, padding, mask, seed)
                if isinstance(x, Tensor)
            ]
            raise ValueError(f"inputs of attention do not match: {', '.join(shapes)}")


class Backend(NamedTuple):
    """An implementation of attention.

    Attributes:
        forward: takes :class:`Inputs` and whether a backward pass will follow; returns the output,
            and tensors to save for that pass.
        backward: takes :class:`Inputs`, the output, the saved tensors, the output's gradient, and
            which gradients are wanted; returns those of query, key, value and epsilon.
        needs_output: whether ``backward`` reads the output.
    """

    forward: Callable[[Inputs, bool], tuple[Tensor, Sequence[Tensor]]]
    backward: Callable[..., Sequence[Tensor | None]]
    needs_output: bool = False


def attention(
    backend: Backend,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    epsilon: float | Tensor,
    heads: int | None = None,
    **settings: Any,
) -> Tensor:
    """``softmax(scale query key^T + masks) value`` with alpha-entmax in place of softmax.

    Arguments are those of :class:`Inputs`, with any strides; settings are fields of
    :class:`fairseq_entmax.kernels.inputs.ScoreSettings`. With ``heads``, query, key and value are
    ``(positions, batch, heads * head_dim)``, as projections return them, and so is the output.

    Returns:
        The output, with the query's shape and dtype, and positions first in memory. A query that
        sees no key gets zeros and gives no gradients. Any other gets NaN if its head's epsilon is
        NaN, or if a score is NaN or ``+inf``. Differentiable in query, key, value and epsilon.
    """
    dense = dense_rows(query), dense_rows(key), dense_rows(value)
    arguments = *dense, epsilon, ScoreSettings(**settings)
    inputs = _inputs(heads, *arguments)
    inputs.check()
    if torch.is_grad_enabled() and any(getattr(one, "requires_grad", False) for one in inputs[:4]):
        output: Tensor = _Attention.apply(backend, heads, *arguments)
        return output
    return _join(backend.forward(inputs, False)[0], heads)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, backend: Backend, heads: int | None, *arguments: Any) -> Tensor:
        inputs = _inputs(heads, *arguments)
        output, saved = backend.forward(inputs, True)
        output = _join(output, heads)
        settings = inputs.settings
        epsilon, ctx.number = functions.as_tensor(inputs.epsilon)
        ctx.backend, ctx.settings, ctx.heads = backend, settings, heads
        ctx.save_for_backward(
            *(*arguments[:3], epsilon, *settings[:2], settings.seed),
            *(output if backend.needs_output else None, *saved),
        )
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, epsilon, padding, mask, seed, output, *saved = ctx.saved_tensors
        settings = ctx.settings._replace(key_padding_mask=padding, attn_mask=mask, seed=seed)
        epsilon = ctx.number if epsilon is None else epsilon
        inputs = _inputs(ctx.heads, query, key, value, epsilon, settings)
        grad, output = _split(grad, ctx.heads), _split(output, ctx.heads)
        wanted = ctx.needs_input_grad[2:6]
        if torch.is_grad_enabled():
            grads = _gradients_with_graph(inputs, grad, wanted)
        else:
            grads = ctx.backend.backward(inputs, output, saved, grad, wanted)
        return None, None, *(_join(one, ctx.heads) for one in grads[:3]), grads[3], None


def _inputs(heads: int | None, *arguments: Any) -> Inputs:
    return Inputs(*(_split(one, heads) for one in arguments[:3]), *arguments[3:])


def _split(joined: Any, heads: int | None) -> Any:
    return joined if joined is None or heads is None else split_heads(joined, heads)


def _join(split: Any, heads: int | None) -> Any:
    return split if split is None or heads is None else join_heads(split)


def _gradients_with_graph(
    inputs: Inputs, grad: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients by torch's own operations, which autograd can follow."""
    # Views, so that no input passes a gradient on to another that it was computed from
    views: list[Any] = [x.view_as(x) if isinstance(x, Tensor) else x for x in inputs[:4]]
    (query, key, value, epsilon), settings = views, inputs.settings
    if isinstance(epsilon, Tensor):
        epsilon = epsilon.float().view(1, -1, 1, 1)
    scores = masked_scores(query, key, settings)
    probs = functions.map_rows(torch_structured, scores, PLAIN, epsilon)
    if settings.dropout:
        assert settings.seed is not None
        chances = settings.dropout, settings.seed
        probs = probs * dropout.factors(tuple(probs.shape), *chances, probs.device)
    output = (probs @ value.float()).to(query.dtype)
    leaves = [one for one, wants in zip(views, wanted, strict=True) if wants]
    found = iter(torch.autograd.grad(output, leaves, grad, create_graph=True))
    return [next(found) if wants else None for wants in wanted]
