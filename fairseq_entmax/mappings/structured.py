"""Structured mappings, as functions: neighbours, or similar scores, get the same probability.

Fusedmax smooths the scores along the words before alpha-entmax, so that a run of neighbours is
chosen as one. Oscarmax pulls similar scores together, wherever they stand. sq-pnorm-max uses the
squared p-norm where sparsemax uses the squared 2-norm (Niculae and Blondel 2017). The paper has
alpha = 2 only. With any alpha, the composition is the regularised argmax

    argmax_p  z.p - Omega_alpha(p) - R(p)        on the simplex,

as its optimality conditions are the same. The rules of :mod:`fairseq_entmax.mappings.functional`
for masks, dtypes, NaN and gradients hold here. A masked key counts as absent, except that it
separates its neighbours: a gap in the mask leaves two chains. At a kink, where a difference equals
the strength, the derivative is a one-sided one; for a strength of 0 it is the right-hand one.
"""

from __future__ import annotations

from torch import Tensor

from fairseq_entmax.kernels.structure import OSCAR, PNORM, TV
from fairseq_entmax.mappings.functional import (
    check_alpha,
    checked,
    map_scores,
    map_structured,
    number_in,
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
        neighbours have the same probability.

    Raises:
        ValueError: ``scores`` is not floating point; ``dim`` is out of range; ``tv`` or ``alpha``
            is out of range or does not broadcast.

    Source:
        Niculae and Blondel 2017, *A Regularized Framework for Sparse and Structured Neural
        Attention*, section 3.2.
    """
    return _smoothed(TV, scores, tv, alpha, dim)


def oscarmax(
    scores: Tensor, oscar: float | Tensor = 0.01, alpha: float | Tensor = 2.0, dim: int = -1
) -> Tensor:
    """Oscarmax: alpha-entmax with a penalty on the larger of each pair of probabilities.

    Keys with similar scores get the same probability, wherever they stand. On the simplex the signs
    of OSCAR drop out, so it penalises ranks: ``oscar * i`` is added to the sorted scores, which are
    then pooled until they fall. The paper's Proposition 2, read literally, takes absolute values
    first, cuts at 0, and is wrong if scores have mixed signs or are cut: for (0.5, 0.1, -0.3) and
    0.1 it gives (0.567, 0.367, 0.067), whose objective is 0.0800, but the minimum is 0.0767, at
    (0.633, 0.333, 0.033).

    Args:
        scores, alpha, dim: as for :func:`fusedmax`; the order of the keys does not matter.
        oscar: strength of the penalty, as ``tv`` there. The paper's is 0.01.

    Returns, Raises:
        As :func:`fusedmax`.

    Source:
        Niculae and Blondel 2017, section 3.2, Bondell and Reich 2008.
    """
    return _smoothed(OSCAR, scores, oscar, alpha, dim)


def sq_pnorm_max(
    scores: Tensor, p: float | Tensor = 1.5, gamma: float | Tensor = 1.0, dim: int = -1
) -> Tensor:
    """sq-pnorm-max: ``argmax_y z.y - gamma / 2 ||y||_p ** 2`` on the simplex.

    With p = 2 and gamma = 1 it is sparsemax. Only keys less than ``gamma`` below the
    largest score are in the support; the smaller p, the more of them are, with less weight each.

    Args:
        scores, dim: as for :func:`fusedmax`; the order of the keys does not matter.
        p: in (1, 2]: a number or a tensor, as ``tv`` there; the paper's is 1.5.
        gamma: from 1e-30 to 1e30, in units of the scores: a number or a tensor; the paper's is 1.

    Returns, Raises:
        As :func:`fusedmax`.

    Source:
        Niculae and Blondel 2017, section 3.1. Solved here by Newton's method on the threshold
        instead of projected gradients, and with gradients for p and gamma.
    """
    p = checked(p, check_p, "p", scores, dim)
    gamma = checked(gamma, check_gamma, "gamma", scores, dim)
    return map_structured(scores, PNORM, p - 1.0, gamma, dim)


# float32 can still add up numbers this large, and divide by numbers this small
LARGEST_STRENGTH, SMALLEST_GAMMA = 1e30, 1e-30


def check_strength(value: float | str, name: str = "strength") -> float:
    """Return the strength of a penalty, from 0 to 1e30, as a float, or raise ValueError."""
    allowed = "a number from 0 to 1e30"
    return number_in(value, name, lambda x: 0.0 <= x <= LARGEST_STRENGTH, allowed)


def check_p(value: float | str, name: str = "p") -> float:
    """Return the p of sq-pnorm-max, above 1 and up to 2, as a float, or raise ValueError."""
    allowed = "a number above 1, up to 2 (sparsemax)"
    return number_in(value, name, lambda x: 1.0 < x <= 2.0, allowed)


def check_gamma(value: float | str, name: str = "gamma") -> float:
    """Return the gamma of sq-pnorm-max, from 1e-30 to 1e30, as a float, or raise ValueError."""
    allowed = "a number above 0, from 1e-30 to 1e30"
    return number_in(value, name, lambda x: SMALLEST_GAMMA <= x <= LARGEST_STRENGTH, allowed)


def _smoothed(
    structure: str, scores: Tensor, strength: float | Tensor, alpha: float | Tensor, dim: int
) -> Tensor:
    strength = checked(strength, check_strength, structure, scores, dim)
    alpha = checked(alpha, check_alpha, "alpha", scores, dim)
    if isinstance(strength, float) and strength == 0.0:
        return map_scores(scores, alpha, dim)
    return map_structured(scores, structure, alpha - 1.0, strength, dim)
