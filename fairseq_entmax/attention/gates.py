"""Hard-concrete gates: a number in [0, 1] for each head, learned, often exactly 0 or 1.

Sources: Louizos, Welling, Kingma 2018, *Learning Sparse Neural Networks through L0
Regularization*; Voita et al. 2019, *Analyzing Multi-Head Self-Attention*, section 6.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.attention.gate_contract import Gate

TEMPERATURE = 0.33
STRETCH = (-0.1, 1.1)
INIT = 2.5
LR_FACTOR = 10.0

# What the numbers above may be. Within these limits, in every combination, gates, penalty and
# their gradients are finite in float32, and the penalty's gradient at the start is not zero.
# - A draw has a gradient where it is strictly between 0 and 1, which at 0.01 is about one in 100.
LOWEST_TEMPERATURE = 0.01
# - The less it goes beyond 0 and 1, the rarer is an exact 0 or 1; from 5 beyond, nearly every
#   draw is one.
LEAST_STRETCH, MOST_STRETCH = 0.01, 5.0
# - P(g != 0) = sigmoid(log a - shift) rounds to 1 in float32, with the gradient 0, from 16.6 on;
#   within the limits above the shift is as low as -6.4.
MOST_INIT = 10.0


class HardConcreteGate(Gate):
    """Gates of the hard-concrete distribution.

    In training a gate is ``clip(s (zeta - gamma) + gamma, 0, 1)`` with ``s = sigmoid((ln u -
    ln(1 - u) + log a) / beta)`` and one ``u ~ U(0, 1)`` for each head and batch; in
    evaluation ``s = sigmoid(log a)``.

    Args:
        num_heads, lr_factor, protected: as for :class:`Gate`.
        temperature: beta, from 0.01 and below 1.
        stretch: gamma below 0 and zeta above 1, by 0.01 to 5.
        init: ``log a`` at the start, from -10 to 10.

    Raises:
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        num_heads: int,
        temperature: float = TEMPERATURE,
        stretch: tuple[float, float] = STRETCH,
        init: float = INIT,
        lr_factor: float = LR_FACTOR,
        protected: Sequence[int] = (),
    ) -> None:
        super().__init__(num_heads, check_init(init), lr_factor, protected)
        self.temperature = check_temperature(temperature)
        self.stretch = check_stretch(stretch)

    def sample(self) -> Tensor:
        noise = torch.logit(self.uniform(), eps=1e-7)
        return self._stretched(torch.sigmoid((noise + self.log_a) / self.temperature))

    def without_noise(self) -> Tensor:
        return self._stretched(torch.sigmoid(self.log_a))

    def probability_open(self) -> Tensor:
        gamma, zeta = self.stretch
        shift = self.temperature * math.log(-gamma / zeta)
        return self.settled(torch.sigmoid(self.log_a - shift))

    def extra_repr(self) -> str:
        protected = f", protected={self.protected}" if self.protected else ""
        return (
            f"{self.num_heads}, temperature={self.temperature}, stretch={self.stretch}{protected}"
        )

    def _stretched(self, s: Tensor) -> Tensor:
        gamma, zeta = self.stretch
        return self.settled((s * (zeta - gamma) + gamma).clamp(0, 1))


# What a gate may be named: those that another file registers, too
GATES: dict[str, type[Gate]] = {"hard-concrete": HardConcreteGate}


def draw(gates: Sequence[Gate], *key: int) -> None:
    """Draw ``u`` of all gates for one batch, as a function of ``key`` alone.

    ``key`` tells this batch from every other: seed, update, number in the update. So training that is
    stopped and resumed, or spread over processes, sees the same gates. Protected heads have a number
    too, so that the others draw what they would without protection.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    numbers = [gate.num_heads for gate in gates]
    uniform = torch.rand(sum(numbers), generator=generator)
    if gates:
        uniform = uniform.to(gates[0].weight.device, non_blocking=True)
    for gate, part in zip(gates, uniform.split(numbers), strict=True):
        gate.use_draw(part)


def check_temperature(value: Any) -> float:
    """``value`` as a number from :data:`LOWEST_TEMPERATURE` and below 1, or a ValueError."""
    rule = f"above 0 and below 1, {LOWEST_TEMPERATURE:g} at the least"
    return _between(LOWEST_TEMPERATURE, value, math.nextafter(1, 0), "the temperature", rule)


def check_stretch(value: Any) -> tuple[float, float]:
    """gamma and zeta, from a pair, from ``"-0.1,1.1"``, or from one number e as (-e, 1 + e)."""
    parts = value.split(",") if isinstance(value, str) else value
    numbers = [_number(part) for part in (parts if isinstance(parts, list | tuple) else [parts])]
    if len(numbers) == 1:
        numbers = [-numbers[0], 1 + numbers[0]]
    # A little more, as 1 + 0.01 is no number of binary digits
    least, most = LEAST_STRETCH * (1 - 1e-9), MOST_STRETCH * (1 + 1e-9)
    is_pair = len(numbers) == 2
    if not (is_pair and least <= -numbers[0] <= most and least <= numbers[1] - 1 <= most):
        raise ValueError(
            f"the stretch must be gamma below 0 and zeta above 1, such as -0.1,1.1, or one "
            f"number above 0 for both sides, such as 0.1, by {LEAST_STRETCH:g} to "
            f"{MOST_STRETCH:g}, not {value!r:.100}"
        )
    return numbers[0], numbers[1]


def check_init(value: Any) -> float:
    """``value`` as a number, :data:`MOST_INIT` at the most to either side of 0, or a ValueError."""
    rule = f"a number from {-MOST_INIT:g} to {MOST_INIT:g}, such as {INIT}"
    return _between(-MOST_INIT, value, MOST_INIT, "the start of log a", rule)


def _between(least: float, value: Any, most: float, name: str, rule: str) -> float:
    number = _number(value)
    if not least <= number <= most:
        raise ValueError(f"{name} must be {rule}, not {value!r:.100}")
    return number


def _number(value: Any) -> float:
    """``value`` as a number; what is none becomes NaN, which no range holds."""
    try:
        return math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
