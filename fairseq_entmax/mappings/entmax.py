"""Alpha-entmax as a module, with a fixed or learned alpha, and with structure or without."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from fairseq_entmax.kernels.structure import OSCAR, PLAIN, TV
from fairseq_entmax.mappings.base import Generator, OfHeads
from fairseq_entmax.mappings.factor import LR_FACTOR, NO_FACTOR, value_of
from fairseq_entmax.mappings.functional import check_alpha, map_structured, number_in
from fairseq_entmax.mappings.scripting import ScriptableEntmax, ScriptableSoftmax, refusal
from fairseq_entmax.mappings.strengths import (
    LEARNED,
    OSCAR_INIT,
    TV_INIT,
    check_strength_init,
    for_scores,
    logit_above_one,
    or_learned,
    raw_strength,
)
from fairseq_entmax.mappings.structured import check_strength

NORMAL = "normal"
_STRENGTH_INIT = {TV: TV_INIT, OSCAR: OSCAR_INIT}


def check_alpha_init(alpha_init: str | float, name: str) -> str | float:
    """Return the text ``normal``, or a number strictly between 1 and 2; else raise ValueError."""
    if alpha_init == NORMAL:
        return NORMAL
    allowed = f"'{NORMAL}' or a number strictly between 1 and 2 (a fixed alpha is entmax:alpha=…)"
    return number_in(alpha_init, name, lambda x: 1.0 < x < 2.0, allowed)


class Entmax(OfHeads):
    """Alpha-entmax, with alpha fixed or learned (Correia et al. 2019, section 3), and structure.

    A learned alpha is ``1 + sigmoid(a)`` (eq. 10), so that it is in range whatever the
    optimiser does. With alpha fixed at 1 it is softmax, at 2 sparsemax (Martins and Astudillo
    2016), at 1.5 the 1.5-entmax of Peters et al. 2019. With a strength of total variation or of
    OSCAR it is fusedmax or oscarmax with any alpha (Niculae and Blondel 2017); a learned strength
    is ``softplus(l)``. With a warmup (``warmup`` in its text) alpha rises from 1 to its value, and
    a strength from 0: after a share ``s`` of the updates alpha is ``1 + s (alpha - 1)``.

    Args:
        alpha: a fixed number in [1, 2]; ``None`` learns it.
        num_alphas: how many values of alpha, and of a strength, are learned: the number of
            heads, or 1 for all heads together.
        alpha_init: initial alpha: ``"normal"`` draws ``a`` from N(0, 1), the paper's choice; a
            number strictly between 1 and 2 is that of every alpha. Unused when alpha is fixed.
        generator: makes these draws; None is torch's own.
        tv: strength of total variation: a fixed number, 0 or more, or ``"learned"``; None, like
            0, means no such penalty.
        oscar: the same for OSCAR; not together with ``tv``.
        strength_init: initial value of a learned strength, above 0; None for the paper's, 0.1 for
            ``tv`` and 0.01 for ``oscar``.
        lr_factor: how much faster than other parameters all numbers here learn, from 0.001
            to 10,000: the parameters hold ``a / lr_factor`` and ``l / lr_factor``.

    Attributes:
        alpha_logit: parameter ``(num_alphas,)``, the ``a`` of eq. 10 over ``lr_factor``; ``None``
            when alpha is fixed.
        raw_tv, raw_oscar: parameters ``(num_alphas,)``, the ``l`` of a learned strength over
            ``lr_factor``; or None.

    Raises:
        ValueError: an argument is out of range, or both strengths are given.
    """

    readers: ClassVar = {
        "alpha": check_alpha,
        "init": check_alpha_init,
        TV: or_learned(check_strength),
        "tv_init": check_strength_init,
        OSCAR: or_learned(check_strength),
        "oscar_init": check_strength_init,
        **OfHeads.readers,
    }
    text_parameters = tuple(readers)
    rising = ("alpha", TV, OSCAR)
    _stored: ClassVar = {"alpha": "alpha_logit", TV: "raw_tv", OSCAR: "raw_oscar"}
    parameter_of: ClassVar = {**_stored, **OfHeads.parameter_of}
    init_of: ClassVar = {"init": "alpha", "tv_init": TV, "oscar_init": OSCAR, **OfHeads.init_of}

    def __init__(
        self,
        alpha: float | None = None,
        num_alphas: int = 1,
        alpha_init: str | float = NORMAL,
        generator: Generator = None,
        tv: float | str | None = None,
        oscar: float | str | None = None,
        strength_init: float | None = None,
        lr_factor: float = NO_FACTOR,
    ) -> None:
        super().__init__()
        if num_alphas < 1:
            raise ValueError(f"num_alphas must be at least 1, not {num_alphas}")
        values = self.read({"alpha": alpha, TV: tv, OSCAR: oscar, LR_FACTOR: lr_factor})
        values["init"] = check_alpha_init(alpha_init, "alpha_init")
        if strength_init is not None:
            start = check_strength_init(strength_init, "strength_init")
            values |= {"tv_init": start, "oscar_init": start}
        self._set_numbers(values, num_alphas, generator)

    def _set_numbers(self, values: dict[str, Any], count: int, generator: Generator) -> None:
        if TV in values and OSCAR in values:
            tv, oscar = (LEARNED if values[name] is None else values[name] for name in (TV, OSCAR))
            raise ValueError(
                f"tv={tv} and oscar={oscar}: leave one out, as a mapping can have only one penalty"
            )
        self.lr_factor = values.get(LR_FACTOR, NO_FACTOR)
        self.fixed_alpha: float | None = values.get("alpha")
        self.alpha_logit: nn.Parameter | None = None
        if self.fixed_alpha is None:
            start = values.get("init", NORMAL)
            logits = (
                torch.randn(count, generator=generator)
                if start == NORMAL
                else torch.full((count,), logit_above_one(start))
            )
            self.alpha_logit = nn.Parameter(logits / self.lr_factor)
        self._structure = TV if TV in values else OSCAR if OSCAR in values else ""
        self.fixed_strength: float | None = values.get(self._structure)
        self.raw_tv: nn.Parameter | None = None
        self.raw_oscar: nn.Parameter | None = None
        if self._structure and self.fixed_strength is None:
            start = values.get(f"{self._structure}_init", _STRENGTH_INIT[self._structure])
            setattr(self, f"raw_{self._structure}", raw_strength(start, count, self.lr_factor))
        self._save_factor()

    @property
    def alpha(self) -> float | Tensor:
        """The alpha in use: a number, or ``(num_alphas,)`` if it is learned."""
        return 1.0 + self._epsilon

    @property
    def _epsilon(self) -> float | Tensor:
        """alpha - 1, even with structure; not subtracted if learned, as digits are lost near 1."""
        if self.alpha_logit is None:
            assert self.fixed_alpha is not None
            return self.scaled_by_rise(self.fixed_alpha - 1.0)
        return self.scaled_by_rise(torch.sigmoid(value_of(self.alpha_logit, self.lr_factor)))

    @property
    def strength(self) -> float | Tensor | None:
        """The strength in use: a number, ``(num_alphas,)`` if it is learned, or None."""
        raw = self.raw_tv if self.raw_oscar is None else self.raw_oscar
        if raw is None:
            return None if self.fixed_strength is None else self.scaled_by_rise(self.fixed_strength)
        return self.scaled_by_rise(functional.softplus(value_of(raw, self.lr_factor)))

    @property
    def is_softmax(self) -> bool:  # type: ignore[override]
        return self.fixed_alpha == 1.0 and not self.is_structured

    @property
    def is_structured(self) -> bool:
        """Whether there is a strength that is not fixed at 0."""
        return bool(self._structure) and self.fixed_strength != 0.0

    def numbers(self) -> dict[str, float | Tensor]:
        strength = self.strength
        structure = {} if strength is None else {self._structure: strength}
        return {"alpha": self.alpha, **structure, **super().numbers()}

    def forward(self, scores: Tensor) -> Tensor:
        scores = self.scaled(scores)
        epsilon, strength = for_scores(self._epsilon, scores), self.strength
        if strength is None or not self.is_structured:
            return map_structured(scores, PLAIN, epsilon, 0.0)
        return map_structured(scores, self._structure, epsilon, for_scores(strength, scores))

    def epsilon(self) -> float | Tensor | None:
        if self.is_structured:
            return None
        epsilon = self._epsilon
        # Softmax uses torch's own kernels, and must give fairseq's numbers
        return epsilon if isinstance(epsilon, Tensor) or epsilon else None

    def scriptable(self) -> nn.Module:
        if self.is_structured:
            raise refusal({TV: "fusedmax (tv)", OSCAR: "oscarmax (oscar)"}[str(self._structure)])
        return ScriptableSoftmax() if self.is_softmax else ScriptableEntmax(self._epsilon)
