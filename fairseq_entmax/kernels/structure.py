"""What a mapping of rows computes, as kernels are told it. Needs torch alone.

Each structure has two parameters for each row, a number for all rows or a tensor that broadcasts
against the scores with a last dimension of size 1:

* :data:`PLAIN`: alpha-entmax without structure; ``epsilon = alpha - 1``, and no strength.
* :data:`TV`: the proximal operator of ``strength * sum |z_i+1 - z_i|`` along the keys, then
  alpha-entmax (fusedmax); ``(epsilon, strength)`` with ``epsilon = alpha - 1``.
* :data:`OSCAR`: that of ``strength * sum_i<j max(p_i, p_j)`` on probabilities, then alpha-entmax
  (oscarmax); ``(epsilon, strength)``.
* :data:`PNORM`: ``argmax z.y - gamma/2 ||y||_p^2`` on the simplex (sq-pnorm-max);
  ``(epsilon, gamma)`` with ``epsilon = p - 1``.

Source: Niculae and Blondel 2017; compositions with every alpha: ``docs/structured.md``.
"""

from __future__ import annotations

import torch
from torch import Tensor

PLAIN, TV, OSCAR, PNORM = "", "tv", "oscar", "pnorm"
STRUCTURES = (TV, OSCAR, PNORM)


def like_rows(parameter: float | Tensor, scores: Tensor) -> Tensor:
    """A parameter as a tensor of the dtype of scores that broadcasts against them."""
    if isinstance(parameter, Tensor):
        return parameter.to(scores.dtype)
    return torch.full((1,), parameter, dtype=scores.dtype, device=scores.device)
