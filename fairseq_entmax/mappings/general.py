"""The regularised argmax of any regulariser whose proximal operator is known."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from fairseq_entmax.mappings.functional import keys_last, sparsemax
from fairseq_entmax.mappings.structured import check_gamma

Step = Callable[[Tensor], Tensor]


def max_omega(scores: Tensor, prox: Step, gamma: float = 1.0, dim: int = -1) -> Tensor:
    """``argmax_y z.y - gamma Omega(y)`` on the simplex, the gradient of max_Omega, for your Omega.

    Args:
        scores, dim: as for :func:`fairseq_entmax.mappings.sparsemax`; a masked key is 0 in Omega.
        prox: maps points ``x (..., keys)``, float64 whatever the scores are, to ``argmin_y Omega(y)
            + 1/2 ||y - x||^2`` of each row, for a strongly convex Omega; autograd must follow it.
            ``lambda x: x / 2`` is the prox of ``1/2 ||y||^2``, and gives sparsemax; that of
            ``1/2 ||y||^2 + R(y)`` is the prox of ``R / 2`` at ``x / 2``.
        gamma: from 1e-30 to 1e30, in units of the scores.

    Returns:
        Probabilities, as from sparsemax, with zeros up to 1e-12. They have only first derivatives,
        also with respect to what ``prox`` learns.

    Raises:
        ValueError: as for sparsemax, or ``gamma`` is out of range.
        RuntimeError: no convergence in 10,000 steps (20 to 250 are common), or a second derivative.

    Source:
        Niculae and Blondel 2017, section 2.2, with derivatives as in Proposition 1; solved by the
        method of Lions and Mercier 1979.
    """
    gamma = check_gamma(gamma)

    def apply(in_full: Tensor) -> Tensor:
        if not in_full.numel():
            return in_full
        masked = in_full == -torch.inf
        points = in_full.double().masked_fill(masked, 0.0) / gamma
        size = points.detach().abs().amax(-1, keepdim=True).clamp(min=1.0)

        def step(state: Tensor, points: Tensor = points) -> tuple[Tensor, Tensor]:
            near = prox(state + points)
            probs = sparsemax((2.0 * near - state).masked_fill(masked, -torch.inf))
            return state + probs - near, probs

        with torch.no_grad():
            state = _repeated(lambda state: step(state)[0], points, size)
        moved = step(state)[0]
        around = state.clone().requires_grad_()
        again = step(around, points.detach())[0]

        def back(grad: Tensor) -> Tensor:
            if torch.is_grad_enabled():
                raise RuntimeError("max_omega has only first derivatives: leave out create_graph")
            through = partial(torch.autograd.grad, again, around, retain_graph=True)
            return _repeated(lambda total: grad + through(total)[0], grad, sizes.pop())

        # The same value to the bit, as a step has kinks where a key enters the support
        state = state + (moved - moved.detach())
        probs = step(state)[1]
        if state.requires_grad:
            # The state's gradient may be small, or mere rounding, beside that of the result
            sizes: list[Tensor] = []
            probs.register_hook(lambda grad: sizes.append(grad.abs().amax(-1, keepdim=True)))
            state.register_hook(back)
        return probs

    return keys_last(apply, scores, dim)


def _repeated(step: Step, value: Tensor, size: Tensor) -> Tensor:
    for _ in range(10_000):
        previous, value = value, step(value)
        if not bool(((value - previous).abs() > 1e-12 * size).any()):  # true with NaN too
            return value
    raise RuntimeError(
        "max_omega does not converge: give it the prox of a strongly convex regulariser"
    )
