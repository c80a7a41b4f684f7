"""How much faster than other parameters the numbers of a mapping learn, and how they are stored.

Adam moves every parameter by about the learning rate in each update, and the ``a`` of alpha =
1 + sigmoid(a) has further to go than a weight. What is stored, and what the optimiser moves, is
therefore ``a / factor``, as gates do it. The factor goes into the state dict beside the parameters,
unless it is 1, so that numbers keep their values wherever they are loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.mappings.strengths import wide

# Its name in a mapping's text, and beside the parameters in a state dict
LR_FACTOR = "lr_factor"
NO_FACTOR = 1.0
# a / factor is what half precision stores: an a of 60 fits, and a thousandth is still exact
LEAST_LR_FACTOR, MOST_LR_FACTOR = 0.001, 10000.0
# Factors that were stored in single precision on the way are the same
_SAME = 1e-6


def check_lr_factor(value: Any, name: str) -> float:
    """``value`` as a number from :data:`LEAST_LR_FACTOR` to :data:`MOST_LR_FACTOR`.

    Raises:
        ValueError: it is not.
    """
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not LEAST_LR_FACTOR <= number <= MOST_LR_FACTOR:
        raise ValueError(
            f"{name} must be a number above 0, from {LEAST_LR_FACTOR:g} to {MOST_LR_FACTOR:g}, not "
            f"{value!r:.100}"
        )
    return number


def value_of(stored: Tensor, factor: float) -> Tensor:
    """What a stored parameter stands for, in float32 at least."""
    value = wide(stored)
    return value if factor == NO_FACTOR else value * factor


def convert(state_dict: dict[str, Any], prefix: str, names: Iterable[str], factor: float) -> None:
    """Store what a state dict has of these parameters by this factor, whatever its own is.

    Args:
        state_dict: gets new tensors for old, and the factor; it has 1 where it does not say.
        prefix: of the names in it, with a dot at the end.
        names: of the parameters.
        factor: to store by.
    """
    given = state_dict.get(prefix + LR_FACTOR)
    theirs = NO_FACTOR if given is None else float(given)
    if not math.isclose(theirs, factor, rel_tol=_SAME):
        for name in (f"{prefix}{name}" for name in names):
            if name in state_dict:
                stored = state_dict[name]
                state_dict[name] = (value_of(stored, theirs) / factor).to(stored.dtype)
    state_dict[prefix + LR_FACTOR] = as_entry(factor)


def as_entry(factor: float) -> Tensor:
    """A factor as a state dict has it: a tensor, which is what all that reads checkpoints expects."""
    return torch.tensor(factor, dtype=torch.float64)
