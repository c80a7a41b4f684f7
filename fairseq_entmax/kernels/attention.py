"""Attention in one kernel as an operator: what is the same for every backend.

A backend computes, and says what it keeps for the backward pass; its derivatives to any order, its
shapes without numbers and many of it at once are here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.kernels.attention_derivatives import attention_gradients, dropped
from fairseq_entmax.kernels.inputs import ScoreSettings, positions_first
from fairseq_entmax.kernels.operators import Differentiable, Operator, leading, or_empty
from fairseq_entmax.kernels.structure import TV


class Given(NamedTuple):
    """What attention is computed from, as its operator takes it.

    Attributes:
        query, key, value: ``(batch, heads, positions, head_dim)``.
        epsilon, strength: ``(1,)`` or ``(heads,)``, or None for the numbers behind them.
        padding, mask, causal, scale, dropout, seed: of
            :class:`~fairseq_entmax.kernels.inputs.ScoreSettings`.
        kind: of structure; empty for none, which has no strength.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    epsilon: Tensor | None
    epsilon_number: float
    strength: Tensor | None
    strength_number: float
    padding: Tensor | None
    mask: Tensor | None
    causal: bool
    scale: float
    dropout: float
    seed: Tensor | None
    kind: str

    @property
    def settings(self) -> ScoreSettings:
        settings = self.padding, self.mask, self.causal, self.scale, self.dropout, self.seed
        return ScoreSettings(*settings)

    @property
    def parameters(self) -> tuple[float | Tensor, float | Tensor]:
        """Epsilon and strength."""
        return (
            self.epsilon_number if self.epsilon is None else self.epsilon,
            self.strength_number if self.strength is None else self.strength,
        )


# Where tensors stand in Given
_QUERY, _KEY, _VALUE, _EPSILON, _STRENGTH, _PADDING, _MASK, _SEED = 0, 1, 2, 3, 5, 7, 8, 12
_DROPOUT = 11
_OF_INPUTS = (_QUERY, _KEY, _VALUE, _EPSILON, _STRENGTH)
# Without dropout and the same for all samples, or they are attended with one after another
_OF_ALL = (_PADDING, _MASK, _SEED)
_TENSORS = (*_OF_INPUTS, *_OF_ALL)
_FIELDS = len(Given._fields)

_SCHEMA = (
    "Tensor query, Tensor key, Tensor value, Tensor? epsilon, float epsilon_number, "
    "Tensor? strength, float strength_number, Tensor? padding, Tensor? mask, bool causal, "
    "float scale, float dropout, Tensor? seed, str kind"
)
_KEPT = "Tensor? output, Tensor? kept, Tensor? kept_too"
_WANTED = "bool for_query, bool for_key, bool for_value, bool for_epsilon, bool for_strength"


class Backend(NamedTuple):
    """What computes attention.

    Attributes:
        name: what its operators are named by.
        forward: of :class:`Given` and whether a backward pass will follow: the output, and two
            tensors that are kept for it, or None, both with the heads second.
        backward: of :class:`Given`, the output, the two, the gradient of the output, and which
            gradients are wanted: those of query, key, value, epsilon and strength.
        kept: of :class:`Given`: two of the shapes and dtypes of what is kept, or None.
        probs: of :class:`Given`, the output and the two: ``(batch, heads, queries, keys)``,
            float32, without a graph.
        needs_output: whether ``backward`` reads the output.
    """

    name: str
    forward: Callable[[Given, bool], tuple[Tensor, Tensor | None, Tensor | None]]
    backward: Callable[..., tuple[Tensor | None, ...]]
    kept: Callable[[Given], tuple[Tensor | None, Tensor | None]]
    probs: Callable[..., Tensor]
    needs_output: bool


def function_of(backend: Backend) -> Callable[..., Tensor]:
    """Attention of the arguments of :class:`Given`, by operators that are defined here."""
    probs = _probs_of(backend)
    gradients = _gradients_of(backend, probs)
    attention = _attention_of(backend, gradients)

    def function(*given: Any) -> Tensor:
        output: Tensor = attention(*given, False)[0]
        return output

    return function


def _attention_of(backend: Backend, gradients: Operator) -> Operator:
    """Behind the fields it takes whether to keep what a backward pass needs."""

    class _Attention(Differentiable):
        @staticmethod
        def forward(ctx: Any, compute: Callable[..., Any], *arguments: Any) -> tuple[Any, ...]:
            fields = list(arguments[:_FIELDS])
            output, *kept = compute(*fields, True)
            tensors = [fields[place] for place in _TENSORS]
            ctx.save_for_backward(*tensors, output if backend.needs_output else None, *kept)
            for place in _TENSORS:
                fields[place] = None
            ctx.fields = fields
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(*(one for one in kept if one is not None))
            return output, *kept

        @staticmethod
        def backward(ctx: Any, grad: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
            fields, saved = list(ctx.fields), list(ctx.saved_tensors)
            for place in _TENSORS:
                fields[place] = saved.pop(0)
            # The first is the function that computes
            needs = ctx.needs_input_grad
            wanted = [needs[1 + place] for place in _OF_INPUTS]
            grads = gradients(*fields, *saved, grad, *wanted)
            results: list[Tensor | None] = [None] * (1 + _FIELDS + 1)
            for place, is_wanted, one in zip(_OF_INPUTS, wanted, grads, strict=True):
                results[1 + place] = one if is_wanted else None
            return tuple(results)

    def forward(*arguments: Any) -> Any:
        *fields, keeps = arguments
        return backend.forward(Given(*fields), keeps)

    def fake(*arguments: Any) -> tuple[Tensor, ...]:
        *fields, keeps = arguments
        given = Given(*fields)
        kept = backend.kept(given) if keeps else (None, None)
        return positions_first(given.query), *(or_empty(one, given.query) for one in kept)

    def batched(size: int, dims: Any, *arguments: Any) -> tuple[Any, Any]:
        return _of_samples(operator, size, dims, arguments)

    operator = Operator(
        f"{backend.name}_attention",
        f"({_SCHEMA}, bool keeps) -> (Tensor, Tensor, Tensor)",
        forward,
        fake=fake,
        batched=batched,
        differentiate=lambda compute, *arguments: _Attention.apply(compute, *arguments),
        dense=False,
    )
    return operator


def _gradients_of(backend: Backend, probs: Operator) -> Operator:
    """Behind the fields it takes what was kept, the gradient of the output, and what is wanted."""

    def backward(*arguments: Any) -> Any:
        given, rest = Given(*arguments[:_FIELDS]), arguments[_FIELDS:]
        return backend.backward(given, *rest[:4], rest[4:])

    def followed(*arguments: Any) -> tuple[Tensor, ...]:
        given, kept = Given(*arguments[:_FIELDS]), arguments[_FIELDS : _FIELDS + 3]
        grad, *wanted = arguments[_FIELDS + 3 :]
        grads = _followed_gradients(given, probs(*given, *kept).detach(), grad)
        return tuple(
            or_empty(one if is_wanted else None, given.query)
            for one, is_wanted in zip(grads, wanted, strict=True)
        )

    def fake(*arguments: Any) -> tuple[Tensor, ...]:
        given, wanted = Given(*arguments[:_FIELDS]), arguments[-len(_OF_INPUTS) :]
        grads = [positions_first(one) for one in given[:3]]
        grads += [
            or_empty(None if one is None else torch.empty_like(one), given.query)
            for one in (given.epsilon, given.strength)
        ]
        return tuple(
            or_empty(one if is_wanted else None, given.query)
            for one, is_wanted in zip(grads, wanted, strict=True)
        )

    def batched(size: int, dims: Any, *arguments: Any) -> tuple[Any, Any]:
        return _of_samples(operator, size, dims, arguments)

    operator = Operator(
        f"{backend.name}_attention_gradients",
        f"({_SCHEMA}, {_KEPT}, Tensor grad, {_WANTED}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
        backward,
        fake=fake,
        batched=batched,
        differentiate=lambda compute, *arguments: followed(*arguments),
        of_old_vmap=followed,
        dense=False,
    )
    return operator


def _probs_of(backend: Backend) -> Operator:
    """Probabilities without a graph, of the fields and what was kept."""

    def probs(*arguments: Any) -> Tensor:
        return backend.probs(Given(*arguments[:_FIELDS]), *arguments[_FIELDS:])

    def fake(*arguments: Any) -> Tensor:
        query, key = arguments[:2]
        return query.new_empty((*query.shape[:3], key.size(2)), dtype=torch.float32)

    def batched(size: int, dims: Any, *arguments: Any) -> tuple[Any, Any]:
        return _of_samples(operator, size, dims, arguments)

    operator = Operator(
        f"{backend.name}_attention_probs",
        f"({_SCHEMA}, {_KEPT}) -> Tensor",
        probs,
        fake=fake,
        batched=batched,
        differentiate=lambda compute, *arguments: compute(*arguments),
        of_old_vmap=probs,
    )
    return operator


def _followed_gradients(given: Given, probs: Tensor, grad: Tensor) -> tuple[Tensor | None, ...]:
    """The gradients in operations that autograd follows."""
    inputs = (given.query, given.key, given.value)
    masked = _masked(given)
    return attention_gradients(
        inputs,
        given.parameters,
        probs,
        grad,
        given.scale,
        given.kind,
        None if masked is None else masked.expand(probs.shape),
        dropped(probs, given.dropout, given.seed),
    )


def _masked(given: Given) -> Tensor | None:
    """Which keys are left out, ``(batch, 1, queries, keys)`` or broadcast to it."""
    if given.kind != TV:  # whose strength alone has a gradient that the probabilities do not tell
        return None
    masked = None if given.padding is None else given.padding.bool()[:, None, None]
    hidden = None if given.mask is None else given.mask == -torch.inf
    if given.causal:
        queries, keys = given.query.size(2), given.key.size(2)
        future = given.query.new_ones((queries, keys), dtype=torch.bool)
        future = future.triu(1 + keys - queries)
        hidden = future if hidden is None else hidden | future
    if masked is None or hidden is None:
        return masked if hidden is None else hidden
    return masked | hidden


def _of_samples(
    operator: Operator, size: int, dims: Sequence[int | None], arguments: Sequence[Any]
) -> tuple[Any, Any]:
    """The operator on many samples: as more heads, or where masks differ one after another.

    With dropout so, too: a weight is dropped by its number among those of its sample, which a
    gradient of samples whose attention is one for all has to find again.
    """
    if not arguments[_DROPOUT] and all(dims[place] is None for place in _OF_ALL):
        results = _as_heads(operator, size, dims, arguments)
    else:
        each = []
        for sample in range(size):
            own = [
                one if dim is None else one.select(dim, sample)
                for one, dim in zip(arguments, dims, strict=True)
            ]
            result = operator(*own)
            each.append(result if isinstance(result, tuple) else (result,))
        results = [
            None if _is_missing(parts[0]) else torch.stack([one.contiguous() for one in parts])
            for parts in zip(*each, strict=True)
        ]
    where = tuple(None if one is None else 0 for one in results)
    found = tuple(or_empty(one, arguments[_QUERY]) for one in results)
    return (found, where) if len(found) > 1 else (found[0], 0)


def _is_missing(result: Tensor | None) -> bool:
    return result is None or (result.dim() == 1 and result.numel() == 0)


def _as_heads(
    operator: Operator, size: int, dims: Sequence[int | None], arguments: Sequence[Any]
) -> list[Tensor | None]:
    """Attention of many samples as one of as many times the heads: it is each head's own."""
    dim = dims[_QUERY]
    heads = arguments[_QUERY].size(1 if dim is None or dim > 1 else 2)
    own = list(arguments)
    for place, (one, dim) in enumerate(zip(arguments, dims, strict=True)):
        if (
            not isinstance(one, Tensor)
            or place in _OF_ALL
            or (dim is None and one.dim() == 1 and not one.numel())
        ):
            continue
        first = leading(one, dim, size)
        if place in (_EPSILON, _STRENGTH):
            own[place] = first.flatten(1).expand(size, heads).reshape(-1)
        else:
            own[place] = first.movedim(0, 1).flatten(1, 2)
    results = operator(*own)
    results = results if isinstance(results, tuple) else (results,)
    found: list[Tensor | None] = []
    of_parameters = {len(_OF_INPUTS) - 2: _EPSILON, len(_OF_INPUTS) - 1: _STRENGTH}
    for place, one in enumerate(results):
        if _is_missing(one):
            found.append(None)
        elif len(results) == len(_OF_INPUTS) and place in of_parameters:
            given, dim = arguments[of_parameters[place]], dims[of_parameters[place]]
            shape = leading(given, dim, size).shape
            each = one.view(size, heads)
            each = each if shape.numel() == each.numel() else each.sum(1)
            found.append(each.reshape(shape))
        else:
            found.append(one.unflatten(1, (size, heads)).movedim(1, 0))
    return found
