"""Attention by a backend as a differentiable function: what is the same for every backend."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.kernels import dropout, functions, torch_structured
from fairseq_entmax.kernels.inputs import ScoreSettings, check_attention, dense_rows, masked_scores
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
    **settings: Any,
) -> Tensor:
    """``softmax(scale query key^T + masks) value`` with alpha-entmax in the place of softmax.

    Query, key and value are ``(batch, heads, positions, head_dim)``, of any strides; settings are
    fields of :class:`fairseq_entmax.kernels.inputs.ScoreSettings`.

    Returns:
        ``(batch, heads, queries, head_dim)``, in the dtype of ``query``; in memory the order is
        (queries, batch, heads, head_dim). A query that sees no key gets zeros and gives no
        gradients; others get NaN if their head's epsilon is NaN, or NaN or ``+inf`` is among
        their scores. Differentiable in the first four arguments.
    """
    refuse_export()
    inputs = Inputs(
        *(dense_rows(query), dense_rows(key), dense_rows(value)), epsilon, ScoreSettings(**settings)
    )
    check_attention(*inputs)
    if torch.is_grad_enabled() and any(getattr(one, "requires_grad", False) for one in inputs[:4]):
        output: Tensor = _Attention.apply(backend, *inputs)
        return output
    return backend.forward(inputs, False)[0]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, backend: Backend, *arguments: Any) -> Tensor:
        inputs = Inputs(*arguments)
        output, kept = backend.forward(inputs, True)
        settings = inputs.settings
        epsilon, ctx.number = functions.as_tensor(inputs.epsilon)
        ctx.backend, ctx.settings = backend, settings
        ctx.save_for_backward(
            *(*inputs[:3], epsilon, *settings[:2], settings.seed),
            *(output if backend.needs_output else None, *kept),
        )
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, epsilon, padding, mask, seed, output, *kept = ctx.saved_tensors
        settings = ctx.settings._replace(key_padding_mask=padding, attn_mask=mask, seed=seed)
        inputs = Inputs(query, key, value, ctx.number if epsilon is None else epsilon, settings)
        wanted = ctx.needs_input_grad[1:5]
        if torch.is_grad_enabled():
            grads = _gradients_with_graph(inputs, grad, wanted)
        else:
            found = ctx.backend.backward(inputs, output, kept, grad, wanted)
            grads = [one if wants else None for one, wants in zip(found, wanted, strict=True)]
        return None, *grads, None


def _gradients_with_graph(
    inputs: Inputs, grad: Tensor, wanted: Sequence[bool]
) -> list[Tensor | None]:
    """The gradients through torch's own operations, of which autograd sees everything."""
    # Views, so that one input is not taken for a function of another
    own: list[Any] = [x.view_as(x) if isinstance(x, Tensor) else x for x in inputs[:4]]
    query, key, value, epsilon = own
    if isinstance(epsilon, Tensor):
        epsilon = epsilon.float().view(1, -1, 1, 1)
    scores = masked_scores(query, key, inputs.settings)
    probs = functions.map_rows(torch_structured, scores, PLAIN, epsilon)
    if inputs.settings.dropout:
        assert inputs.settings.seed is not None
        chances = inputs.settings.dropout, inputs.settings.seed
        probs = probs * dropout.factors(tuple(probs.shape), *chances, probs.device)
    output = (probs @ value.float()).to(query.dtype)
    leaves = [one for one, wants in zip(own, wanted, strict=True) if wants]
    found = iter(torch.autograd.grad(output, leaves, grad, create_graph=True))
    return [next(found) if wants else None for wants in wanted]
