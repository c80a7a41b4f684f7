"""sq-pnorm-max as a module."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from fairseq_entmax.kernels.structure import PNORM
from fairseq_entmax.mappings.base import Generator, OfHeads
from fairseq_entmax.mappings.factor import LR_FACTOR, NO_FACTOR, value_of
from fairseq_entmax.mappings.functional import map_structured, softmax
from fairseq_entmax.mappings.scripting import refusal
from fairseq_entmax.mappings.strengths import (
    GAMMA,
    P_INIT,
    check_p_init,
    for_scores,
    logit_above_one,
    or_learned,
)
from fairseq_entmax.mappings.structured import check_gamma, check_p


class SqPNormMax(OfHeads):
    """sq-pnorm-max (Niculae and Blondel 2017), with p fixed or learned.

    A learned p is ``1 + sigmoid(b)``, so that it is in range whatever the optimiser does. No p and
    gamma make it softmax, so after a share ``s`` of a warmup (``warmup`` in its text) the result is
    ``s`` times the mapping plus ``1 - s`` times softmax.

    Args:
        p: a fixed number in (1, 2], or ``"learned"``. With p = 2 and gamma = 1 it is sparsemax.
        num_ps: how many values of p are learned: the number of heads, or 1 for all heads together.
        p_init: initial value of a learned p, strictly between 1 and 2. Unused when p is fixed.
        gamma: above 0, in units of the scores; fixed.
        lr_factor: how much faster than other parameters p learns, from 0.001 to 10,000.

    Attributes:
        p_logit: parameter ``(num_ps,)``, the b above over ``lr_factor``; None when p is fixed.

    Raises:
        ValueError: an argument is out of range.
    """

    readers: ClassVar = {
        "p": or_learned(check_p),
        "p_init": check_p_init,
        "gamma": check_gamma,
        **OfHeads.readers,
    }
    text_parameters = tuple(readers)
    parameter_of: ClassVar = {"p": "p_logit", **OfHeads.parameter_of}
    init_of: ClassVar = {"p_init": "p", **OfHeads.init_of}

    def __init__(
        self,
        p: float | str = P_INIT,
        num_ps: int = 1,
        p_init: float = P_INIT,
        gamma: float = GAMMA,
        lr_factor: float = NO_FACTOR,
    ) -> None:
        super().__init__()
        if num_ps < 1:
            raise ValueError(f"num_ps must be at least 1, not {num_ps}")
        given = {"p": p, "p_init": p_init, "gamma": gamma, LR_FACTOR: lr_factor}
        self._set_numbers(self.read(given), num_ps, None)

    def _set_numbers(self, values: dict[str, Any], count: int, generator: Generator) -> None:
        self.lr_factor = values.get(LR_FACTOR, NO_FACTOR)
        self.gamma: float = values.get("gamma", GAMMA)
        self.fixed_p: float | None = values.get("p", P_INIT)
        self.p_logit: nn.Parameter | None = None
        if self.fixed_p is None:
            logit = logit_above_one(values.get("p_init", P_INIT))
            self.p_logit = nn.Parameter(torch.full((count,), logit) / self.lr_factor)
        self._save_factor()

    @property
    def p(self) -> float | Tensor:
        """The p in use: a number, or ``(num_ps,)`` if it is learned."""
        epsilon = self._epsilon
        return epsilon + 1.0 if self.fixed_p is None else self.fixed_p

    @property
    def _epsilon(self) -> float | Tensor:
        """p - 1; not subtracted if p is learned, as digits are lost near 1."""
        if self.p_logit is None:
            assert self.fixed_p is not None
            return self.fixed_p - 1.0
        return torch.sigmoid(value_of(self.p_logit, self.lr_factor))

    def numbers(self) -> dict[str, float | Tensor]:
        return {"p": self.p, "gamma": self.gamma, **super().numbers()}

    def forward(self, scores: Tensor) -> Tensor:
        scores = self.scaled(scores)
        probs = map_structured(scores, PNORM, for_scores(self._epsilon, scores), self.gamma)
        return probs if self.risen == 1.0 else torch.lerp(softmax(scores), probs, self.risen)

    def scriptable(self) -> nn.Module:
        raise refusal("sqpnormmax")
