"""Numbers of a mapping that a text fixes or leaves to be learned, and their initial values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_entmax.mappings.functional import number_in
from fairseq_entmax.mappings.structured import LARGEST_STRENGTH

# What a text says instead of a number
LEARNED = "learned"

# The paper's values, for scores of about that size (Niculae and Blondel 2017, section 4)
TV_INIT, OSCAR_INIT, P_INIT, GAMMA = 0.1, 0.01, 1.5, 1.0


def or_learned(check: Callable[[Any, str], float]) -> Callable[[Any, str], float | None]:
    """A reader of numbers that ``check`` accepts, and of :data:`LEARNED`, as None."""

    def read(value: Any, name: str) -> float | None:
        if value == LEARNED:
            return None
        try:
            return check(value, name)
        except ValueError as error:
            raise ValueError(f"{error}; or {name}={LEARNED}") from None

    return read


def check_strength_init(value: float | str, name: str) -> float:
    """Return the initial value, above 0, of a learned strength as a float, or raise ValueError."""
    allowed = "a number above 0, up to 1e30 (a learned strength that starts at 0 never changes)"
    return number_in(value, name, lambda x: 0.0 < x <= LARGEST_STRENGTH, allowed)


def check_p_init(value: float | str, name: str) -> float:
    """Return the initial value of a learned p, strictly between 1 and 2, or raise ValueError."""
    allowed = "strictly between 1 and 2 (a learned p that starts at 1 or 2 never changes)"
    return number_in(value, name, lambda x: 1.0 < x < 2.0, allowed)


def logit_above_one(number: float) -> float:
    """The ``a`` whose ``1 + sigmoid(a)`` (Correia et al. 2019, eq. 10) is this, between 1 and 2."""
    return math.log(number - 1.0) - math.log(2.0 - number)


def raw_strength(strength: float, count: int, lr_factor: float) -> nn.Parameter:
    """A parameter ``(count,)``; softplus of ``lr_factor`` times each value is ``strength``."""
    # log(exp(strength) - 1), accurate for small and for large strengths
    raw = torch.full((count,), strength + math.log(-math.expm1(-strength)))
    return nn.Parameter(raw / lr_factor)


def for_scores(value: float | Tensor, scores: Tensor) -> float | Tensor:
    """View ``(heads,)`` or ``(1,)`` so as to broadcast to ``(..., heads, queries, keys)``."""
    if not isinstance(value, Tensor):
        return value
    count = value.size(0)
    if count != 1 and (scores.dim() < 3 or scores.size(-3) != count):
        raise ValueError(
            f"the mapping has parameters for {count} heads, but the scores have the shape "
            f"{tuple(scores.shape)}: give it scores (batch, heads, queries, keys) of {count} heads, "
            f"or build it for as many heads as they have, or with one number for all"
        )
    return value if count == 1 else value.view(-1, 1, 1)
