"""The structures of mappings of rows, by the names that kernels are given. Needs only torch.

Each structure has two parameters: a number for all rows, or a tensor that broadcasts against the
scores with a last dimension of size 1:

* :data:`PLAIN`: alpha-entmax without structure; ``epsilon = alpha - 1``, and no strength.
* :data:`TV`: the proximal operator of ``strength * sum |z_i+1 - z_i|`` along the keys, then
  alpha-entmax (fusedmax); ``(epsilon, strength)`` with ``epsilon = alpha - 1``.
* :data:`OSCAR`: the same for ``strength * sum_i<j max(p_i, p_j)`` on probabilities (oscarmax);
  ``(epsilon, strength)``.
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
    """A parameter as a tensor with the dtype of the scores, which broadcasts against them."""
    if isinstance(parameter, Tensor):
        return parameter.to(scores.dtype)
    return torch.full((1,), parameter, dtype=scores.dtype, device=scores.device)
