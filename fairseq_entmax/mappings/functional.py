"""Mappings from scores to probabilities, as functions.

All of them are alpha-entmax (Peters et al. 2019; Correia et al. 2019, eq. 5) with a fixed or
learned alpha: softmax is alpha = 1, sparsemax alpha = 2. They share these rules. ``scores`` is
a floating-point tensor of any shape, and ``-inf`` masks a key: it gets exactly 0. A row with
every key masked gives zeros, and zero gradients, not NaN. float16 and bfloat16 are computed in
float32 and returned in the dtype given.

NaN and infinity are never hidden, as with :func:`torch.softmax`, whatever kernel runs. A row with
NaN or ``+inf`` among its scores is NaN at every key, even masked ones, and so are its gradients. A
row whose alpha is NaN is NaN too, unless all its keys are masked; the gradient of such an alpha is
NaN. Rows with a valid alpha of their own are not affected. NaN or infinity in the incoming gradient
of a row leaves no finite number in the gradient of its scores.

Gradients can be differentiated again: with ``create_graph=True`` the backward pass uses operations
that autograd follows, which are slower. Above alpha = 1.5, second derivatives grow without bound at
the edge of the support. For sparsemax, which is piecewise linear, they are 0.
``torch.compile`` breaks its graph at a mapping.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fairseq_entmax import kernels
from fairseq_entmax.kernels import functions
from fairseq_entmax.kernels.structure import PLAIN
from fairseq_entmax.kernels.tracing import is_recorded, outside_graphs, refuse_export


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Softmax: alpha-entmax at alpha = 1. Only masked keys get zero, apart from underflow.

    Args:
        scores: any shape; ``-inf`` masks a key.
        dim: the dimension of the keys, from ``-scores.dim()`` to ``scores.dim() - 1``.

    Returns:
        Probabilities of the shape and dtype of ``scores``, each row summing to 1.

    Raises:
        ValueError: ``scores`` is not floating point, or ``dim`` is out of range.
    """
    return map_scores(scores, 1.0, dim)


def sparsemax(scores: Tensor, dim: int = -1) -> Tensor:
    """Sparsemax (Martins and Astudillo 2016): alpha-entmax at alpha = 2.

    Arguments, result and errors are those of :func:`softmax`.
    """
    return map_scores(scores, 2.0, dim)


def entmax15(scores: Tensor, dim: int = -1) -> Tensor:
    """1.5-entmax (Peters et al. 2019): alpha-entmax at alpha = 1.5.

    Arguments, result and errors are those of :func:`softmax`.
    """
    return map_scores(scores, 1.5, dim)


def entmax(scores: Tensor, alpha: float | Tensor = 1.5, dim: int = -1) -> Tensor:
    """Alpha-entmax for any alpha in the closed interval [1, 2].

    Args:
        scores: any shape; ``-inf`` masks a key.
        alpha: a number in [1, 2], or a floating-point tensor of such numbers that
            broadcasts against ``scores`` with size 1 at ``dim`` (for attention scores
            ``(batch, heads, queries, keys)`` and one alpha per head: ``(heads, 1, 1)``).
            A tensor may require a gradient.
        dim: the dimension of the keys, from ``-scores.dim()`` to ``scores.dim() - 1``.

    Returns:
        Probabilities of the shape and dtype of ``scores``, each row summing to 1.

    Raises:
        ValueError: ``scores`` is not floating point; ``dim`` is out of range; ``alpha`` is
            NaN, outside [1, 2], or does not broadcast. Checking the values of a tensor
            waits for its device; :func:`map_scores` does not check.

    Source:
        Correia, Niculae, Martins 2019, *Adaptively Sparse Transformers*, eq. 5 to 7 and
        Proposition 1.
    """
    return map_scores(scores, checked(alpha, check_alpha, "alpha", scores, dim), dim)


def map_scores(scores: Tensor, alpha: float | Tensor, dim: int = -1) -> Tensor:
    """:func:`entmax` without checking the values of ``alpha``.

    For callers whose alpha is in [1, 2] by construction; outside, the result is undefined.
    """
    return map_structured(scores, PLAIN, alpha - 1.0, 0.0, dim)


def map_structured(
    scores: Tensor, structure: str, epsilon: float | Tensor, strength: float | Tensor, dim: int = -1
) -> Tensor:
    """Any mapping, by its structure and parameters as in :mod:`fairseq_entmax.kernels.structure`.

    Like :func:`map_scores`, it does not check their values.
    """

    def apply(in_full: Tensor, epsilon: float | Tensor, strength: float | Tensor) -> Tensor:
        backend = kernels.backend_for(in_full, epsilon, structure)
        return functions.map_rows(backend, in_full, structure, epsilon, strength)

    return keys_last(apply, scores, dim, epsilon, strength)


@outside_graphs
def keys_last(
    function: Callable[..., Tensor], scores: Tensor, dim: int, *parameters: float | Tensor
) -> Tensor:
    """Call a function with scores in float32 or float64, keys last, and with its parameters."""
    check_dim(scores, dim)
    refuse_export()
    is_last = dim in (-1, scores.dim() - 1)

    def turned(tensor: Tensor) -> Tensor:
        # Autograd would record even a transposition that changes nothing
        return tensor if is_last else tensor.transpose(dim, -1)

    fitted = []
    for parameter in parameters:
        if isinstance(parameter, Tensor):
            missing = scores.dim() - parameter.dim()
            parameter = turned(parameter.view((1,) * missing + tuple(parameter.shape)))
        fitted.append(parameter)
    return turned(function(turned(in_full_precision(scores)), *fitted)).to(scores.dtype)


def in_full_precision(numbers: Tensor) -> Tensor:
    """Convert half precision to float32."""
    return numbers.float() if numbers.dtype.itemsize < 4 else numbers


def number_in(
    value: float | str, name: str, is_allowed: Callable[[float], bool], allowed: str
) -> float:
    """Return ``value`` as a float, or raise a ValueError that says what is ``allowed``."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be {allowed}, not {value!r:.100}") from None
    if isinstance(value, bool) or not is_allowed(number):  # a comparison with NaN is false
        raise ValueError(f"{name} must be {allowed}, not {number}")
    return number


def check_alpha(alpha: float | str, name: str = "alpha") -> float:
    """Return ``alpha`` as a float, or raise ValueError if it is not a number in [1, 2]."""
    allowed = "from 1 (softmax) to 2 (sparsemax)"
    return number_in(alpha, name, lambda x: 1.0 <= x <= 2.0, allowed)


def check_dim(scores: Tensor, dim: int) -> None:
    """Raise ValueError unless ``scores`` is floating point and has a dimension ``dim``."""
    if not isinstance(scores, Tensor) or not scores.is_floating_point():
        found = scores.dtype if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"scores must be a floating-point tensor, not {found}")
    if scores.dim() == 0:
        raise ValueError("scores must have a dimension for the keys, but they are a single number")
    if not -scores.dim() <= dim < scores.dim():
        raise ValueError(
            f"dim must be from {-scores.dim()} to {scores.dim() - 1} for scores of shape "
            f"{tuple(scores.shape)}, not {dim}"
        )


def checked(
    value: float | Tensor, check: Callable[..., float], name: str, scores: Tensor, dim: int
) -> float | Tensor:
    """Check and return a parameter, a number or a tensor of numbers, of a mapping of ``scores``.

    ``check`` returns one number as a float, or raises ValueError; it must allow an interval. A
    tensor must broadcast against the scores with size 1 at ``dim``.
    """
    check_dim(scores, dim)
    if not isinstance(value, Tensor):
        if isinstance(value, str):  # ``check`` accepts it, for mappings that are read from a text
            raise ValueError(f"{name} must be a number or a tensor, not the text {value!r}")
        return check(value, name)
    if not value.is_floating_point():
        raise ValueError(f"{name} must be a floating-point tensor, not {value.dtype}")
    keys_last = list(scores.shape)
    keys_last[dim] = 1
    beside = keys_last[len(keys_last) - value.dim() :]
    if value.dim() > len(keys_last) or any(
        size not in (1, other) for size, other in zip(value.shape, beside, strict=True)
    ):
        raise ValueError(
            f"{name} of shape {tuple(value.shape)} does not broadcast to {tuple(keys_last)}, the "
            f"shape of the scores with size 1 at dim {dim}"
        )
    if value.numel() > 0 and not is_recorded():
        # aminmax passes NaN on, which is in no interval
        for number in torch.aminmax(value.detach()):
            check(number.item(), name)
    return value
