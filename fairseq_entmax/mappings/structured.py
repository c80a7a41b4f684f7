"""Mappings with structure, as functions: neighbours, or equals, get the same probability.

Fusedmax smooths the scores along the words before alpha-entmax, so that a run of neighbours is
chosen as one; oscarmax pulls scores together that are near each other, wherever they stand;
sq-pnorm-max has the squared p-norm where sparsemax has the 2-norm (Niculae and Blondel 2017). The
paper has alpha = 2 only. The composition with every alpha is the regularised argmax

    argmax_p  z.p - Omega_alpha(p) - R(p)        on the simplex,

as its optimality conditions are the same. The rules of :mod:`fairseq_entmax.mappings.functional`
for masks, dtypes, NaN and gradients hold here. A masked key is as if it was not there, but that it
parts its neighbours: a gap in the mask leaves two chains. At a kink, where a difference is just as
large as the strength, one of the one-sided derivatives is taken; that of a strength of 0 is to the
right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax import kernels
from fairseq_entmax.kernels import torch_structured
from fairseq_entmax.kernels.operators import (
    Differentiable,
    Operator,
    as_arguments,
    by_samples,
    fake_gradient,
    followed,
    is_plain,
    or_empty,
    samples_first,
)
from fairseq_entmax.kernels.structure import OSCAR, PNORM, TV, Structure
from fairseq_entmax.mappings.functional import (
    check_alpha,
    check_dim,
    checked,
    map_scores,
    summed,
)


def fusedmax(
    scores: Tensor, tv: float | Tensor = 0.1, alpha: float | Tensor = 2.0, dim: int = -1
) -> Tensor:
    """Fusedmax: alpha-entmax with a penalty on the total variation along the keys.

    Args:
        scores: any shape; ``-inf`` masks a key.
        tv: strength of the penalty, from 0 to 1e30, in units of the scores: a number, or a
            floating-point tensor that broadcasts against ``scores`` with size 1 at ``dim``, which
            may require a gradient. At 0 this is :func:`entmax`. The paper's is 0.1.
        alpha: as for :func:`entmax`; 2, the default, is the paper's.
        dim: the dimension of the keys, in the order of the words.

    Returns:
        Probabilities of the shape and dtype of ``scores``, each row summing to 1. Runs of
        neighbours have the same number.

    Raises:
        ValueError: ``scores`` is not floating point; ``dim`` is out of range; ``tv`` or ``alpha``
            is out of range or does not broadcast.

    Source:
        Niculae and Blondel 2017, *A Regularized Framework for Sparse and Structured Neural
        Attention*, section 3.2.
    """
    return _smoothed(TV, scores, tv, "tv", alpha, dim)


def oscarmax(
    scores: Tensor, oscar: float | Tensor = 0.01, alpha: float | Tensor = 2.0, dim: int = -1
) -> Tensor:
    """Oscarmax: alpha-entmax with a penalty on the larger of each two probabilities.

    Keys with scores near each other get the same probability, wherever they stand. On the simplex
    the signs of OSCAR drop out, so the penalty is one on ranks: sorted scores get ``oscar * i`` and
    are pooled until they fall. The paper's Proposition 2, read literally, takes absolute values
    first, cuts at 0, and is wrong where scores have mixed signs or are cut: for (0.5, 0.1, -0.3)
    and 0.1 it gives (0.567, 0.367, 0.067), of which the objective is 0.0800, and the minimum is
    0.0767, at (0.633, 0.333, 0.033).

    Args:
        scores, alpha, dim: as for :func:`fusedmax`; the order of the keys does not matter.
        oscar: strength of the penalty, as ``tv`` there. The paper's is 0.01.

    Returns, Raises:
        As :func:`fusedmax`.

    Source:
        Niculae and Blondel 2017, section 3.2, Bondell and Reich 2008.
    """
    return _smoothed(OSCAR, scores, oscar, "oscar", alpha, dim)


def sq_pnorm_max(
    scores: Tensor, p: float | Tensor = 1.5, gamma: float | Tensor = 1.0, dim: int = -1
) -> Tensor:
    """sq-pnorm-max: ``argmax_y z.y - gamma / 2 ||y||_p ** 2`` on the simplex.

    With p = 2 and gamma = 1 it is sparsemax. Only keys less than ``gamma`` below the
    largest score are in the support; the smaller p is, the more of them are, with the less weight.

    Args:
        scores, dim: as for :func:`fusedmax`; the order of the keys does not matter.
        p: in (1, 2]: a number or a tensor, as ``tv`` there; the paper's is 1.5.
        gamma: from 1e-30 to 1e30, in units of the scores: a number or a tensor; the paper's is 1.

    Returns, Raises:
        As :func:`fusedmax`.

    Source:
        Niculae and Blondel 2017, section 3.1. Here by Newton's method on the threshold instead of
        projected gradients, and with gradients for p and gamma.
    """
    check_dim(scores, dim)
    p = checked(p, check_p, "p", scores, dim)
    gamma = checked(gamma, check_gamma, "gamma", scores, dim)
    return map_structured(scores, Structure(PNORM, p - 1.0, gamma), dim)


def map_structured(scores: Tensor, structure: Structure, dim: int = -1) -> Tensor:
    """A mapping with structure, without a look at the values of its parameters.

    For callers whose parameters are in range by construction; outside, the result is undefined.

    Args:
        scores, dim: as for :func:`fusedmax`.
        structure: which mapping, and its parameters: numbers, or tensors that broadcast against
            ``scores`` with size 1 at ``dim``.
    """
    kind, epsilon, strength = structure

    def apply(wide: Tensor, epsilon: float | Tensor, strength: float | Tensor) -> Tensor:
        probs: Tensor = STRUCTURED(wide, kind, *as_arguments(epsilon), *as_arguments(strength))
        return probs

    return keys_last(apply, scores, dim, epsilon, strength)


# float32 can still add up what is so large, and divide by what is so small
LARGEST_STRENGTH, SMALLEST_GAMMA = 1e30, 1e-30


def check_strength(value: float | str, name: str = "strength") -> float:
    """Return the strength of a penalty as a float.

    Raises:
        ValueError: it is not a number from 0 to :data:`LARGEST_STRENGTH`.
    """
    number = _in_range(value, name, lambda one: 0.0 <= one < math.inf, "a number, 0 or more")
    return _in_range(number, name, lambda one: one <= LARGEST_STRENGTH, "1e30 at the most")


def check_p(value: float | str, name: str = "p") -> float:
    """Return the p of sq-pnorm-max as a float.

    Raises:
        ValueError: it is not a number above 1, and 2 at the most.
    """
    allowed = "a number above 1, and 2 (sparsemax) at the most"
    return _in_range(value, name, lambda number: 1.0 < number <= 2.0, allowed)


def check_gamma(value: float | str, name: str = "gamma") -> float:
    """Return the gamma of sq-pnorm-max as a float.

    Raises:
        ValueError: it is not a number from :data:`SMALLEST_GAMMA` to :data:`LARGEST_STRENGTH`.
    """
    number = _in_range(value, name, lambda one: 0.0 < one < math.inf, "a number above 0")
    return _in_range(
        number, name, lambda one: SMALLEST_GAMMA <= one <= LARGEST_STRENGTH, "from 1e-30 to 1e30"
    )


def _in_range(
    value: float | str, name: str, is_allowed: Callable[[float], bool], allowed: str
) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be {allowed}, not {value!r}") from None
    if not is_allowed(number):
        raise ValueError(f"{name} must be {allowed}, not {number}")
    return number


def _smoothed(
    kind: str,
    scores: Tensor,
    strength: float | Tensor,
    name: str,
    alpha: float | Tensor,
    dim: int,
) -> Tensor:
    check_dim(scores, dim)
    strength = checked(strength, check_strength, name, scores, dim)
    alpha = checked(alpha, check_alpha, "alpha", scores, dim)
    if isinstance(strength, float) and strength == 0.0:
        return map_scores(scores, alpha, dim)
    return map_structured(scores, Structure(kind, alpha - 1.0, strength), dim)


def keys_last(
    function: Callable[..., Tensor], scores: Tensor, dim: int, *parameters: float | Tensor
) -> Tensor:
    """Call a function of scores in float32 or float64 with the keys last, and of its parameters."""
    check_dim(scores, dim)
    fitted = []
    for parameter in parameters:
        if isinstance(parameter, Tensor):
            missing = scores.dim() - parameter.dim()
            parameter = parameter.view((1,) * missing + tuple(parameter.shape))
            parameter = parameter.transpose(dim, -1)
        fitted.append(parameter)
    wide = scores.to(torch.float64 if scores.dtype == torch.float64 else torch.float32)
    return function(wide.transpose(dim, -1), *fitted).transpose(dim, -1).to(scores.dtype)


def as_scores(parameter: float | Tensor, scores: Tensor) -> float | Tensor:
    """A parameter in the dtype of the scores, where it is a tensor."""
    return parameter.to(scores.dtype) if isinstance(parameter, Tensor) else parameter


def _parameters(
    like: Tensor,
    epsilon: Tensor | None,
    epsilon_number: float,
    strength: Tensor | None,
    strength_number: float,
) -> tuple[float | Tensor, float | Tensor]:
    """What an operator was given, as kernels take it."""
    return (
        as_scores(epsilon_number if epsilon is None else epsilon, like),
        as_scores(strength_number if strength is None else strength, like),
    )


def _probabilities(scores: Tensor, kind: str, *given: Any) -> Tensor:
    parameters = _parameters(scores, *given)
    backend = kernels.structured_for(scores, kind, *parameters)
    return backend.probabilities(scores, kind, *parameters)


def _gradients(
    probs: Tensor,
    kind: str,
    epsilon: Tensor | None,
    epsilon_number: float,
    strength: Tensor | None,
    strength_number: float,
    masked: Tensor | None,
    grad: Tensor,
    *wanted: bool,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    parameters = _parameters(probs, epsilon, epsilon_number, strength, strength_number)
    backend = kernels.structured_for(probs, kind, *parameters)
    return _of_parameters(
        backend.gradients(probs, kind, *parameters, masked, grad, _three(wanted)), epsilon, strength
    )


def _followed_gradients(
    probs: Tensor,
    kind: str,
    epsilon: Tensor | None,
    epsilon_number: float,
    strength: Tensor | None,
    strength_number: float,
    masked: Tensor | None,
    grad: Tensor,
    *wanted: bool,
) -> tuple[Tensor, ...]:
    """As :func:`_gradients`, in operations that autograd follows."""
    parameters = _parameters(probs, epsilon, epsilon_number, strength, strength_number)
    grads = _of_parameters(
        torch_structured.followed_gradients(probs, kind, *parameters, masked, grad, _three(wanted)),
        epsilon,
        strength,
    )
    return tuple(or_empty(one, probs) for one in grads)


def _three(wanted: tuple[bool, ...]) -> tuple[bool, bool, bool]:
    for_scores, for_epsilon, for_strength = wanted
    return for_scores, for_epsilon, for_strength


def _of_parameters(
    grads: tuple[Tensor | None, ...], epsilon: Tensor | None, strength: Tensor | None
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of parameters, from those of rows."""
    for_scores, of_epsilon, of_strength = grads
    return for_scores, summed(of_epsilon, epsilon), summed(of_strength, strength)


class _Structured(Differentiable):
    """Keys last, in float32 or float64; parameters numbers, or tensors of as many dimensions."""

    @staticmethod
    def forward(
        ctx: Any,
        compute: Callable[..., Tensor],
        scores: Tensor,
        kind: str,
        epsilon: Tensor | None,
        epsilon_number: float,
        strength: Tensor | None,
        strength_number: float,
    ) -> Tensor:
        probs = compute(scores, kind, epsilon, epsilon_number, strength, strength_number)
        masked = None
        if kind == TV and ctx.needs_input_grad[5]:
            masked = scores.detach() == -math.inf
            # Not kept where there is nothing, unless to look would wait for a device
            if is_plain(masked) and masked.device.type == "cpu" and not masked.any():
                masked = None
        ctx.kind, ctx.numbers = kind, (epsilon_number, strength_number)
        ctx.save_for_backward(probs, epsilon, strength, masked)
        return probs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        probs, epsilon, strength, masked = ctx.saved_tensors
        given = (epsilon, ctx.numbers[0], strength, ctx.numbers[1])
        wanted = tuple(ctx.needs_input_grad[place] for place in (1, 3, 5))
        grads = STRUCTURED_GRADIENTS(probs, ctx.kind, *given, masked, grad, *wanted)
        for_scores, for_epsilon, for_strength = (
            one if is_wanted else None for one, is_wanted in zip(grads, wanted, strict=True)
        )
        return None, for_scores, None, for_epsilon, None, for_strength, None


def _differentiated(compute: Callable[..., Tensor], *arguments: Any) -> Tensor:
    probs: Tensor = _Structured.apply(compute, *arguments)
    return probs


def _batched(size: int, dims: tuple[int | None, ...], *arguments: Any) -> tuple[Tensor, int]:
    return STRUCTURED(*samples_first(size, dims, arguments)), 0


def _batched_gradients(
    size: int, dims: tuple[int | None, ...], *arguments: Any
) -> tuple[Any, tuple[int | None, ...]]:
    return by_samples(STRUCTURED_GRADIENTS(*samples_first(size, dims, arguments)), arguments[-3:])


_OF_BOTH = "Tensor? epsilon, float epsilon_number, Tensor? strength, float strength_number"

STRUCTURED = Operator(
    "structured",
    f"(Tensor scores, str kind, {_OF_BOTH}) -> Tensor",
    _probabilities,
    fake=lambda scores, *others: fake_gradient(scores, True, scores),
    batched=_batched,
    differentiate=_differentiated,
)
STRUCTURED_GRADIENTS = Operator(
    "structured_gradients",
    f"(Tensor probs, str kind, {_OF_BOTH}, Tensor? masked, Tensor grad, bool for_scores, "
    "bool for_epsilon, bool for_strength) -> (Tensor, Tensor, Tensor)",
    _gradients,
    fake=lambda probs, kind, epsilon, _, strength, __, masked, grad, *wanted: tuple(
        fake_gradient(of, is_wanted, probs)
        for of, is_wanted in zip((probs, epsilon, strength), wanted, strict=True)
    ),
    batched=_batched_gradients,
    differentiate=followed(_followed_gradients),
    of_old_vmap=_followed_gradients,
)
