"""Head gates: the base class, which is all that penalty and pruning use, and hard-concrete ones.

A gate is a learned number in [0, 1] for each head, often exactly 0 or 1.

Sources: Louizos, Welling, Kingma 2018, *Learning Sparse Neural Networks through L0
Regularization*; Voita et al. 2019, *Analyzing Multi-Head Self-Attention*, section 6.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_entmax import compat
from fairseq_entmax.mappings import factor as factors
from fairseq_entmax.mappings.factor import RATIO
from fairseq_entmax.mappings.functional import number_in

UNDECIDED = -1
TEMPERATURE = 0.33
STRETCH = (-0.1, 1.1)
INIT = 2.5
LR_FACTOR = 10.0

# Limits of the numbers above. Within them, in every combination, the gates, the penalty and their
# gradients are finite in float32, and the penalty's gradient at the start is not zero.
# - A draw has a gradient only strictly between 0 and 1: at temperature 0.01 about one draw in 100.
LOWEST_TEMPERATURE = 0.01
# - The less the stretch goes beyond 0 and 1, the rarer is an exact 0 or 1; from 5 beyond, nearly
#   every draw is exactly 0 or 1.
LEAST_STRETCH, MOST_STRETCH = 0.01, 5.0
# - P(g != 0) = sigmoid(log a - shift) rounds to 1 in float32, with gradient 0, once log a - shift
#   reaches 16.6; within the limits above the shift is as low as -6.4.
MOST_INIT = 10.0


class Gate(nn.Module):
    """One gate for each head of one attention: a number in [0, 1], from a learned ``log a``.

    A subclass defines :meth:`sample`, :meth:`without_noise` and :meth:`probability_open`, which all
    end with :meth:`with_decisions`, and :meth:`score` if it does not rank heads by ``log a``.
    :meth:`decide` makes a gate exactly 0 or 1, in training too; its gradient is then zero. The gate
    of a protected head is 1, whatever is drawn or decided.

    Args:
        num_heads: number of gates, 1 or more.
        temperature: beta, how soft a draw is, at least 0.01 and below 1.
        init: initial ``log a``, from -10 to 10.
        lr_factor: how much faster ``log a`` learns than other parameters, from 0.001 to 10,000.
            Adam moves every parameter by about the learning rate in each update, and ``log a``
            has a long way to go.
        protected: heads, counted from 0, whose gate is always 1; not stored in checkpoints.

    Raises:
        ValueError: an argument is out of its range.

    Attributes:
        weight: ``(num_heads,)``, learned: ``log a / lr_factor``.
        decision: ``(num_heads,)``: -1 while the gate is undecided, else 0 or 1.
        filled: names of values that the last loaded state dict lacked, and that did not change.
    """

    weight: nn.Parameter
    decision: Tensor
    _protected: Tensor
    needs_target = False  # whether it needs a number of heads to keep, not a penalty weight
    draws_together = False  # whether one draw serves all layers, so that none can redraw

    def __init__(
        self,
        num_heads: int,
        temperature: float = TEMPERATURE,
        init: float = INIT,
        lr_factor: float = LR_FACTOR,
        protected: Sequence[int] = (),
    ) -> None:
        super().__init__()
        self.temperature = check_temperature(temperature)
        self.lr_factor = factors.check_lr_factor(lr_factor, "the factor")
        self.weight = nn.Parameter(torch.full((num_heads,), check_init(init) / self.lr_factor))
        self.register_buffer("decision", torch.full((num_heads,), UNDECIDED, dtype=torch.int8))
        self.register_buffer(RATIO, factors.as_ratio(self.lr_factor))
        self.protected = tuple(protected)
        # uint8, which every way of distributing a model over workers can send
        mask = torch.zeros(num_heads, dtype=torch.uint8)
        mask[list(self.protected)] = 1
        self.register_buffer("_protected", mask, persistent=False)
        self.filled: list[str] = []
        self._uniform: Tensor | None = None

    def sample(self) -> Tensor:
        """The gates of a training pass, ``(num_heads,)``, drawn by :meth:`uniform`."""
        raise NotImplementedError

    def without_noise(self) -> Tensor:
        """The gates in evaluation, ``(num_heads,)``."""
        raise NotImplementedError

    def probability_open(self) -> Tensor:
        """P(g != 0) of each gate: ``(num_heads,)``; exactly 0 or 1 where decided or protected."""
        raise NotImplementedError

    def score(self) -> Tensor:
        """The score by which heads are kept, largest first: ``(num_heads,)``, without gradient."""
        return self.log_a.detach().masked_fill(self.is_protected, math.inf)

    def decide(self, is_open: Tensor | None) -> None:
        """Set unprotected gates to 1 where ``is_open``, else to 0; None lets all learn again."""
        with torch.no_grad():
            if is_open is None:
                self.decision.fill_(UNDECIDED)
            else:
                self.decision.copy_(is_open)

    def extra_repr(self) -> str:
        more = f", protected={self.protected}" if self.protected else ""
        return f"{self.num_heads}, temperature={self.temperature}{more}"

    @classmethod
    def steer(cls, gates: Sequence[Any], number: float, progress: float) -> None:
        """Prepare the gates that share one target, all of this class, for the next pass.

        ``number`` says how many of their unprotected heads should be open by now; it falls to the
        target. ``progress`` rises from 0 to 1, which it reaches when the heads are decided.
        """

    def forward(self) -> Tensor:
        """The gates, ``(num_heads,)`` in [0, 1], float32 (float64 in a float64 module)."""
        return self.sample() if self.training else self.without_noise()

    def at_evaluation(self) -> Tensor:
        """The gates in evaluation, ``(num_heads,)``, whatever the mode; no gradient."""
        with torch.no_grad():
            return self.without_noise()

    @property
    def num_heads(self) -> int:
        """Number of gates."""
        return self.weight.numel()

    @property
    def is_protected(self) -> Tensor:
        """``(num_heads,)``: whether each head is protected."""
        return self._protected != 0

    @property
    def log_a(self) -> Tensor:
        """The learned ``log a``: ``(num_heads,)``, float32 (float64 in a float64 module)."""
        return factors.value_of(self.weight, self.lr_factor)

    def use_draw(self, uniform: Tensor | None) -> None:
        """Set the ``u`` of the next training passes, ``(num_heads,)``; None draws anew in each."""
        self._uniform = uniform

    def uniform(self) -> Tensor:
        """One ``u ~ U(0, 1)`` for each head: that of :meth:`use_draw`, or a new draw."""
        log_a = self.log_a
        return torch.rand_like(log_a) if self._uniform is None else self._uniform.to(log_a)

    @property
    def is_decided(self) -> bool:
        """Whether every gate is decided, or protected."""
        return bool(((self.decision != UNDECIDED) | self.is_protected).all())

    def with_decisions(self, values: Tensor) -> Tensor:
        """Replace the values of decided gates by 0 or 1, and of protected gates by 1."""
        # Their gradient is zero, not missing: distributed training waits for every gradient
        decided = self.decision.to(values.dtype)
        values = torch.where(self.decision == UNDECIDED, values, decided)
        return values.masked_fill(self.is_protected, 1.0) if self.protected else values

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Keep the present gates if a checkpoint has none; else load log a, whatever its factor.

        A checkpoint without a factor is assumed to have ours.
        """
        if prefix + RATIO in state_dict:
            factors.convert(state_dict, prefix, ("weight",), self.lr_factor)
        state_dict[prefix + RATIO] = factors.as_ratio(self.lr_factor)
        stored = [
            (prefix + name, getattr(self, name)) for name in self.state_dict() if name != RATIO
        ]
        self.filled = compat.fill_in(state_dict, stored)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


class HardConcreteGate(Gate):
    """Gates of the hard-concrete distribution.

    In training a gate is ``clip(s (zeta - gamma) + gamma, 0, 1)`` with ``s = sigmoid((ln u -
    ln(1 - u) + log a) / beta)`` and one ``u ~ U(0, 1)`` for each head and batch; in
    evaluation ``s = sigmoid(log a)``.

    Args:
        stretch: gamma below 0 and zeta above 1, by 0.01 to 5; for the others see :class:`Gate`.
    """

    def __init__(
        self,
        num_heads: int,
        temperature: float = TEMPERATURE,
        stretch: tuple[float, float] = STRETCH,
        **options: Any,
    ) -> None:
        super().__init__(num_heads, temperature, **options)
        self.stretch = check_stretch(stretch)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, stretch={self.stretch}"

    def sample(self) -> Tensor:
        noise = torch.logit(self.uniform(), eps=1e-7)
        return self._stretched(torch.sigmoid((noise + self.log_a) / self.temperature))

    def without_noise(self) -> Tensor:
        return self._stretched(torch.sigmoid(self.log_a))

    def probability_open(self) -> Tensor:
        gamma, zeta = self.stretch
        shift = self.temperature * math.log(-gamma / zeta)
        return self.with_decisions(torch.sigmoid(self.log_a - shift))

    def _stretched(self, s: Tensor) -> Tensor:
        gamma, zeta = self.stretch
        return self.with_decisions((s * (zeta - gamma) + gamma).clamp(0, 1))


# Gates by their names in --gate
HARD_CONCRETE = "hard-concrete"
GATES: dict[str, type[Gate]] = {HARD_CONCRETE: HardConcreteGate}


def register_gate(name: str, gate: type[Gate]) -> None:
    """Register a gate under this name for ``--gate``.

    Raises:
        ValueError: the name is in use.
    """
    if name in GATES:
        raise ValueError(f"a gate cannot be named {name!r}: the name is already in use")
    GATES[name] = gate


def draw(gates: Sequence[Gate], *key: int) -> None:
    """Draw ``u`` of all gates for one batch, as a function of ``key`` alone.

    ``key`` identifies the batch: seed, update, number in the update. So training that is stopped
    and resumed, or distributed over processes, sees the same gates. Protected heads draw too, so
    that the others draw what they would without protection.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
    numbers = [gate.num_heads for gate in gates]
    uniform = torch.rand(sum(numbers), generator=generator)
    uniform = uniform.to(gates[0].weight.device, non_blocking=True)
    for gate, part in zip(gates, uniform.split(numbers), strict=True):
        gate.use_draw(part)


def check_temperature(value: Any) -> float:
    """Return ``value`` as a number in [:data:`LOWEST_TEMPERATURE`, 1), or raise ValueError."""
    rule = f"at least {LOWEST_TEMPERATURE:g} and below 1"
    return number_in(value, "the temperature", lambda x: LOWEST_TEMPERATURE <= x < 1, rule)


def check_stretch(value: Any) -> tuple[float, float]:
    """Read gamma and zeta from a pair, from ``"-0.1,1.1"``, or from one number e as (-e, 1 + e)."""
    parts = value.split(",") if isinstance(value, str) else value
    try:
        numbers = [float(part) for part in (parts if isinstance(parts, list | tuple) else [parts])]
    except (TypeError, ValueError, OverflowError):
        numbers = []
    if len(numbers) == 1:
        numbers = [-numbers[0], 1 + numbers[0]]
    # With a small tolerance, as 1 + 0.01 has no exact binary form
    least, most = LEAST_STRETCH * (1 - 1e-9), MOST_STRETCH * (1 + 1e-9)
    is_pair = len(numbers) == 2
    if not (is_pair and least <= -numbers[0] <= most and least <= numbers[1] - 1 <= most):
        raise ValueError(
            f"the stretch must be gamma below 0 and zeta above 1, by {LEAST_STRETCH:g} to "
            f"{MOST_STRETCH:g}, such as -0.1,1.1, or one such distance for both sides, such as "
            f"0.1, not {value!r:.100}"
        )
    return numbers[0], numbers[1]


def check_init(value: Any) -> float:
    """Return ``value`` as a number at most :data:`MOST_INIT` from 0, or raise ValueError."""
    rule = f"a number from {-MOST_INIT:g} to {MOST_INIT:g}, such as {INIT}"
    return number_in(value, "the initial log a", lambda x: abs(x) <= MOST_INIT, rule)
