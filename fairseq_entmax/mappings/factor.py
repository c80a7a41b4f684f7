"""How much faster than other parameters the numbers of a mapping learn, and how they are stored.

Adam moves every parameter by about the learning rate in each update, and the ``a`` of alpha =
1 + sigmoid(a) has further to go than a weight. So ``a / factor`` is what is stored and what the
optimiser moves, as in gates. It gets the gradient of ``a``, so that SGD, too, moves ``a`` by
``factor`` times what it would without one. Unless it is 1, the factor is a buffer beside the
parameters, so that numbers keep their values wherever a checkpoint is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.mappings.functional import in_full_precision, number_in

# The factor's name in a mapping's text, and that of its buffer, numerator and denominator
LR_FACTOR, RATIO = "lr_factor", "lr_factor_ratio"
NO_FACTOR = 1.0
# Half precision stores a / factor: an a of 60 fits, and a small one is exact to a thousandth
LEAST_LR_FACTOR, MOST_LR_FACTOR = 0.001, 10000.0
# Of the ratio: it is then so close to the factor that nobody will notice
_MOST_DENOMINATOR = 10**9
_SAME = 1e-6


def check_lr_factor(value: Any, name: str) -> float:
    """Return ``value`` as a number from 0.001 to 10,000, or raise ValueError."""
    allowed = f"a number above 0, from {LEAST_LR_FACTOR:g} to {MOST_LR_FACTOR:g}"
    return number_in(value, name, lambda x: LEAST_LR_FACTOR <= x <= MOST_LR_FACTOR, allowed)


def value_of(stored: Tensor, factor: float) -> Tensor:
    """The value that a stored parameter stands for, in float32 at least; they share a gradient."""
    value = in_full_precision(stored)
    return value if factor == NO_FACTOR else (value * factor).detach() + (value - value.detach())


def convert(state_dict: dict[str, Any], prefix: str, names: Iterable[str], factor: float) -> None:
    """Convert these parameters in a state dict to this factor, whatever its own is.

    It gets new tensors for the old, and the factor unless that is 1. A state dict without a factor
    has 1. The ``prefix`` of the names ends with a dot.
    """
    theirs = _factor_of(state_dict.pop(prefix + RATIO, as_ratio(NO_FACTOR)), prefix + RATIO)
    if not math.isclose(theirs, factor, rel_tol=_SAME):
        for name in (f"{prefix}{name}" for name in names):
            if name in state_dict:
                # Not rounded again, even if the checkpoint is in half precision
                state_dict[name] = value_of(state_dict[name], theirs) / factor
    if factor != NO_FACTOR:
        state_dict[prefix + RATIO] = as_ratio(factor)


def _factor_of(ratio: Tensor, name: str) -> float:
    numerator, denominator = [*ratio.flatten().tolist(), 0, 0][:2]
    return check_lr_factor(numerator / denominator if denominator else math.nan, name)


def as_ratio(factor: float) -> Tensor:
    """A factor as numerator and denominator, ``(2,)`` int64, unchanged by half precision."""
    ratio = Fraction(factor).limit_denominator(_MOST_DENOMINATOR)
    return torch.tensor([ratio.numerator, ratio.denominator])
