"""Attention by a backend as a differentiable function: what is the same for every backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.kernels import dropout, functions, torch_structured
from fairseq_entmax.kernels.inputs import (
    ScoreSettings,
    check_attention,
    dense_rows,
    join_heads,
    masked_scores,
    split_heads,
)
from fairseq_entmax.kernels.structure import PLAIN
from fairseq_entmax.kernels.tracing import refuse_export


class Inputs(NamedTuple):
    """What attention is computed from.

    Attributes:
        query, key, value: ``(batch, heads, positions, head_dim)``, with dense rows.
        epsilon: alpha - 1: a number, or ``(1,)`` or ``(heads,)``.
        settings: masks, scale and dropout.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    epsilon: float | Tensor
    settings: ScoreSettings

    @classmethod
    def of(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        epsilon: float | Tensor,
        heads: int | None,
        settings: ScoreSettings,
    ) -> Inputs:
        """Of what :func:`attention` is given."""
        query, key, value = (dense_rows(_split(one, heads)) for one in (query, key, value))
        return cls(query, key, value, epsilon, settings)


class Backend(NamedTuple):
    """What computes attention.

    Attributes:
        forward: of :class:`Inputs` and whether a backward pass will follow: the output, and tensors
            that are kept for it.
        backward: of :class:`Inputs`, the output, what was kept, its gradient, and which gradients
            are wanted: those of query, key, value and epsilon.
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
    """``softmax(scale query key^T + masks) value`` with alpha-entmax in the place of softmax.

    Query, key and value are ``(batch, heads, positions, head_dim)``; or, where the number of heads is
    given, as projections make them, ``(positions, batch, heads * head_dim)``, so that autograd sees
    no heads. They are of any strides; settings are fields of
    :class:`fairseq_entmax.kernels.inputs.ScoreSettings`.

    Returns:
        As the query is, in its dtype, and positions first in memory. A query that sees no key gets
        zeros and gives no gradients; others get NaN if their head's epsilon is NaN, or NaN or
        ``+inf`` is among their scores. Differentiable in the first four arguments.
    """
    refuse_export()
    arguments = query, key, value, epsilon, heads, ScoreSettings(**settings)
    if torch.is_grad_enabled() and any(getattr(x, "requires_grad", False) for x in arguments[:4]):
        output: Tensor = _Attention.apply(backend, *arguments)
        return output
    return _forward(backend, arguments, False)[0]


def _forward(
    backend: Backend, arguments: tuple[Any, ...], keeps: bool
) -> tuple[Tensor, Sequence[Tensor]]:
    inputs = Inputs.of(*arguments)
    check_attention(*inputs)
    output, kept = backend.forward(inputs, keeps)
    return _joined(output, arguments[4]), kept


def _split(tensor: Tensor, heads: int | None) -> Tensor:
    return tensor if heads is None else split_heads(tensor, heads)


def _joined(tensor: Tensor, heads: int | None) -> Tensor:
    return tensor if heads is None else join_heads(tensor)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, backend: Backend, *arguments: Any) -> Tensor:
        *tensors, epsilon, heads, settings = arguments
        output, kept = _forward(backend, arguments, True)
        epsilon, ctx.number = functions.as_tensor(epsilon)
        ctx.backend, ctx.heads, ctx.settings = backend, heads, settings
        ctx.save_for_backward(
            *(*tensors, epsilon, *settings[:2], settings.seed),
            *(output if backend.needs_output else None, *kept),
        )
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, epsilon, padding, mask, seed, output, *kept = ctx.saved_tensors
        settings = ctx.settings._replace(key_padding_mask=padding, attn_mask=mask, seed=seed)
        heads, wanted = ctx.heads, ctx.needs_input_grad[1:5]
        leaves = query, key, value, ctx.number if epsilon is None else epsilon
        if torch.is_grad_enabled():
            grads = _gradients_with_graph(leaves, heads, settings, grad, wanted)
            return None, *grads, None, None
        output = None if output is None else _split(output, heads)
        *found, of_epsilon = ctx.backend.backward(
            *(Inputs.of(*leaves, heads, settings), output, kept, _split(grad, heads), wanted)
        )
        return None, *(_joined(one, heads) for one in found), of_epsilon, None, None


def _gradients_with_graph(
    inputs: tuple[Tensor, Tensor, Tensor, Any],
    heads: int | None,
    settings: ScoreSettings,
    grad: Tensor,
    wanted: Sequence[bool],
) -> list[Tensor | None]:
    """The gradients through torch's own operations, of which autograd sees everything."""
    # Views, so that one input is not taken for a function of another
    own: list[Any] = [x.view_as(x) if isinstance(x, Tensor) else x for x in inputs]
    query, key, value, epsilon, _ = Inputs.of(own[0], own[1], own[2], own[3], heads, settings)
    if isinstance(epsilon, Tensor):
        epsilon = epsilon.float().view(1, -1, 1, 1)
    scores = masked_scores(query, key, settings)
    probs = functions.map_rows(torch_structured, scores, PLAIN, epsilon)
    if settings.dropout:
        assert settings.seed is not None
        chances = settings.dropout, settings.seed
        probs = probs * dropout.factors(tuple(probs.shape), *chances, probs.device)
    output = _joined((probs @ value.float()).to(query.dtype), heads)
    leaves = [one for one, wants in zip(own, wanted, strict=True) if wants]
    found = iter(torch.autograd.grad(output, leaves, grad, create_graph=True))
    return [next(found) if wants else None for wants in wanted]
