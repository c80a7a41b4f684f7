"""What every gate on heads is: the penalty on open heads and pruning know this much alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_entmax import compat
from fairseq_entmax.mappings import factor as factors
from fairseq_entmax.mappings.factor import RATIO

UNDECIDED = -1


class Gate(nn.Module):
    """One gate for each head of one attention: a number in [0, 1], by a learned ``log a``.

    A subclass writes :meth:`sample`, :meth:`without_noise` and :meth:`probability_open`, each of which
    ends with :meth:`settled`; and :meth:`score`, where heads are to be kept by another order.
    A gate can be decided, by :meth:`decide`: it is then exactly 0 or 1, in training too, and gets
    no gradient. A protected head has the gate 1, whatever is drawn or decided.

    Args:
        num_heads: number of gates, 1 or more.
        init: ``log a`` at the start.
        lr_factor: how much faster ``log a`` learns than other parameters, from 0.001 to 10,000.
            Adam moves every parameter by about the learning rate in each update, and ``log a``
            has some way to go.
        protected: heads whose gate is 1 for ever, from 0; a checkpoint does not hold it.

    Attributes:
        weight: ``(num_heads,)``, learned: ``log a / lr_factor``.
        decision: ``(num_heads,)``: -1 where the gate is not decided, else 0 or 1.
        filled: names of the values that the last loaded state dict did not have. They
            kept their start.

    Raises:
        ValueError: ``lr_factor`` is out of its range.
    """

    weight: nn.Parameter
    decision: Tensor
    _protected: Tensor

    def __init__(
        self, num_heads: int, init: float, lr_factor: float, protected: Sequence[int] = ()
    ) -> None:
        super().__init__()
        self.lr_factor = factors.check_lr_factor(lr_factor, "the factor")
        self.weight = nn.Parameter(torch.full((num_heads,), init / self.lr_factor))
        self.register_buffer("decision", torch.full((num_heads,), UNDECIDED, dtype=torch.int8))
        self.register_buffer(RATIO, factors.as_ratio(self.lr_factor))
        self.protected = tuple(protected)
        # Of numbers, which every way to spread a model over workers can send
        mask = torch.zeros(num_heads, dtype=torch.uint8)
        mask[list(self.protected)] = 1
        self.register_buffer("_protected", mask, persistent=False)
        self.filled: list[str] = []
        self._uniform: Tensor | None = None

    def sample(self) -> Tensor:
        """The gates of a training pass, ``(num_heads,)``, by :meth:`uniform`."""
        raise NotImplementedError

    def without_noise(self) -> Tensor:
        """The gates as evaluation has them, ``(num_heads,)``."""
        raise NotImplementedError

    def probability_open(self) -> Tensor:
        """P(g != 0) of each gate: ``(num_heads,)``; exactly 0 or 1 where decided or protected."""
        raise NotImplementedError

    def score(self) -> Tensor:
        """By what the heads to keep are chosen: ``(num_heads,)``, the largest first; no gradient."""
        return self.log_a.detach().masked_fill(self.is_protected, math.inf)

    def decide(self, is_open: Tensor | None) -> None:
        """Set all but protected gates to 1 where ``is_open``, else to 0; None lets all learn again."""
        with torch.no_grad():
            if is_open is None:
                self.decision.fill_(UNDECIDED)
            else:
                self.decision.copy_(is_open)

    def forward(self) -> Tensor:
        """The gates, ``(num_heads,)`` in [0, 1], float32 (float64 in a float64 module)."""
        return self.sample() if self.training else self.without_noise()

    def at_evaluation(self) -> Tensor:
        """The gates as evaluation has them, ``(num_heads,)``, whatever the mode; no gradient."""
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
        """``(num_heads,)``, float32 (float64 in a float64 module): where each gate stands."""
        return factors.wide(self.weight) * self.lr_factor

    def use_draw(self, uniform: Tensor | None) -> None:
        """Give the ``u`` of the next training passes, ``(num_heads,)``; None draws in each."""
        self._uniform = uniform

    def uniform(self) -> Tensor:
        """One ``u ~ U(0, 1)`` for each head, that of :meth:`use_draw` if there is one."""
        log_a = self.log_a
        return torch.rand_like(log_a) if self._uniform is None else self._uniform.to(log_a)

    @property
    def is_decided(self) -> bool:
        """Whether every gate is decided, or protected."""
        return bool(self.is_settled().all())

    def is_settled(self) -> Tensor:
        """``(num_heads,)``: whether each gate is decided, or protected."""
        return (self.decision != UNDECIDED) | self.is_protected

    def settled(self, values: Tensor) -> Tensor:
        """The values, but 0 or 1 where a gate is decided or protected."""
        # With a gradient of zero, not none: distributed training waits for every gradient
        decided = self.decision.to(values.dtype)
        values = torch.where(self.decision == UNDECIDED, values, decided)
        return values.masked_fill(self.is_protected, 1.0) if self.protected else values

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Keep the present gates where a checkpoint has none, and its log a, whatever its factor.

        A checkpoint that does not say its factor is taken to have ours.
        """
        if prefix + RATIO in state_dict:
            factors.convert(state_dict, prefix, ("weight",), self.lr_factor)
        state_dict[prefix + RATIO] = factors.as_ratio(self.lr_factor)
        own = ((prefix + "weight", self.weight), (prefix + "decision", self.decision))
        self.filled = compat.fill_in(state_dict, own)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
