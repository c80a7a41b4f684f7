"""The regularised argmax of any regulariser whose proximal operator is known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.mappings.functional import keys_last, sparsemax
from fairseq_entmax.mappings.structured import check_gamma

# How near two steps are to each other at the end, relative to the largest number of a row
_TOLERANCE = {torch.float64: 1e-13, torch.float32: 2e-7}


def max_omega(
    scores: Tensor,
    prox: Callable[[Tensor], Tensor],
    gamma: float = 1.0,
    dim: int = -1,
    iterations: int = 1000,
) -> Tensor:
    """``argmax_y z.y - gamma Omega(y)`` on the simplex: the gradient of max_Omega, for an Omega of yours.

    Omega is strongly convex and given by its proximal operator on the whole space. Of
    ``1/2 ||y||^2``, which makes this :func:`sparsemax`, that is ``lambda x: x / 2``; of
    ``1/2 ||y||^2 + R(y)`` it is that of ``R / 2`` at ``x / 2``.

    Args:
        scores: any shape; ``-inf`` masks a key, whose probability is 0 in Omega too.
        prox: points ``(..., keys)``, float32 or float64, to ``argmin_y Omega(y) + 1/2 ||y - x||^2`` of each
            row. Autograd must be able to follow it; what it learns gets gradients.
        gamma: from 1e-30 to 1e30, in units of the scores.
        dim: the dimension of the keys, from ``-scores.dim()`` to ``scores.dim() - 1``.
        iterations: how many there may be, forward and backward; 20 to 250 are common.

    Returns:
        Probabilities of the shape and dtype of ``scores``, each row summing to 1, within rounding: some
        zeros may be as small as 1e-14 (1e-7 in float32) instead. They have first derivatives only.

    Raises:
        ValueError: ``scores`` is not floating point; ``dim`` or ``gamma`` is out of range.
        RuntimeError: the iterations do not converge; a second derivative is asked for.

    Source:
        Niculae and Blondel 2017, section 2.2; here by the splitting of Douglas and Rachford (Lions and
        Mercier 1979), whose fixed point is differentiated, as they do in Proposition 1.
    """
    gamma = check_gamma(gamma)

    def apply(in_full: Tensor) -> Tensor:
        masked = in_full == -torch.inf
        return _Splitting(prox, masked, iterations).solve(in_full.masked_fill(masked, 0.0) / gamma)

    return keys_last(apply, scores, dim)


class _Splitting:
    """Steps between the proximal operator and the projection onto the simplex, for all rows at once."""

    def __init__(self, prox: Callable[[Tensor], Tensor], masked: Tensor, iterations: int) -> None:
        self._prox, self._masked, self._iterations = prox, masked, iterations

    def solve(self, scores: Tensor) -> Tensor:
        with torch.no_grad():
            size = scores.abs().amax(-1, keepdim=True).clamp(min=1.0)
            state = self._repeat(lambda state: self._step(state, scores)[0], scores, size)
        if not torch.is_grad_enabled():
            return self._step(state, scores)[1]
        around = state.requires_grad_()
        again = self._step(around, scores.detach())[0]
        moved = self._step(state.detach(), scores)[0]
        # At the same place to the bit, as every step bends where a key enters the support
        state = state.detach() + (moved - moved.detach())

        def implicit(grad: Tensor) -> Tensor:
            """Of a state that steps no longer change: the sum over all the steps behind it."""
            if torch.is_grad_enabled():
                raise RuntimeError("max_omega has first derivatives only: leave create_graph out")

            def back(total: Tensor) -> Tensor:
                (before,) = torch.autograd.grad(again, around, total, retain_graph=True)
                return grad + before

            return self._repeat(back, grad, grad.abs().amax(-1, keepdim=True))

        if state.requires_grad:
            state.register_hook(implicit)
        return self._step(state, scores)[1]

    def _step(self, state: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
        """The next state, and the probabilities."""
        near = self._prox(state + scores)
        probs = sparsemax((2.0 * near - state).masked_fill(self._masked, -torch.inf))
        return state + probs - near, probs

    def _repeat(self, function: Callable[[Any], Tensor], value: Tensor, size: Tensor) -> Tensor:
        least = _TOLERANCE[value.dtype] * size
        for _ in range(self._iterations):
            previous, value = value, function(value)
            if not bool(((value - previous).abs() > least).any()):  # NaN does not change, either
                return value
        raise RuntimeError(
            f"max_omega does not converge in iterations={self._iterations}: give more, or the prox of a "
            f"strongly convex regulariser"
        )
