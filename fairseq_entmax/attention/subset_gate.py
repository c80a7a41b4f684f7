"""Gates of which exactly k are open: differentiable subset pruning.

Sources: Li, Cotterell, Sachan 2021, *Differentiable Subset Pruning of Transformer Heads*; Xie, Ermon
2019, *Reparameterizable Subset Sampling via Continuous Relaxations* (the relaxed subset).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.attention import gates
from fairseq_entmax.attention.gates import GATES, LOWEST_TEMPERATURE, Gate

SUBSET = "subset"


class _Subset(NamedTuple):
    """The gates that are drawn together, and how."""

    gates: Sequence[SubsetGate]
    number: int  # k
    temperature: float


class SubsetGate(Gate):
    """Gates of which k are open, by the scores ``log a`` of all heads that share a target.

    In training Gumbel noise is added to the scores, and a softmax of them over a temperature taken k
    times, each without what the ones before have taken; a gate is the sum of what it got. So the
    gates sum to k; as the temperature falls they become 0 and 1, but for an update or two a gate may
    be a little above 1. In evaluation the k largest scores have the gate 1, all others 0. The
    penalty says k, which falls from all heads to ``--target-heads``; until it does, all are open.

    Args:
        num_heads, lr_factor, protected: as for :class:`Gate`.
        temperature: at the start, from 0.01 and below 1; it falls to 0.01 until heads are decided.
        stretch: not used, as no gate goes beyond its range.
        init: ``log a`` at the start, from -10 to 10; only differences matter.

    Attributes:
        chance: ``(num_heads,)``, in a checkpoint: 1 for heads that are open in evaluation, 0 for
            others; while k falls, the part of the last head that is still to be paid for.
    """

    chance: Tensor
    needs_target = True

    def __init__(
        self,
        num_heads: int,
        temperature: float = gates.TEMPERATURE,
        stretch: tuple[float, float] = gates.STRETCH,
        init: float = gates.INIT,
        lr_factor: float = gates.LR_FACTOR,
        protected: Sequence[int] = (),
    ) -> None:
        super().__init__(num_heads, gates.check_init(init), lr_factor, protected)
        self.temperature = gates.check_temperature(temperature)
        self.register_buffer("chance", torch.ones(num_heads))
        self._subset: _Subset | None = None
        self._drawn: Tensor | None = None

    @classmethod
    def steer(cls, gates: Sequence[SubsetGate], number: float, progress: float) -> None:
        fall = LOWEST_TEMPERATURE / gates[0].temperature
        # Decided gates are what they are, whatever is drawn
        drawn = math.ceil(number) if progress < 1 else sum(gate.num_heads for gate in gates)
        subset = _Subset(gates, drawn, gates[0].temperature * fall**progress)
        scores = torch.cat(
            [gate.score().masked_fill(gate.is_protected, -math.inf) for gate in gates]
        )
        ranks = scores.argsort(descending=True, stable=True).argsort()
        chances = (number - ranks).clamp(0.0, 1.0)
        for gate, chance in zip(gates, chances.split([g.num_heads for g in gates]), strict=True):
            gate._subset = subset
            gate.chance.copy_(chance)

    def sample(self) -> Tensor:
        if self._drawn is None:
            self._draw_together()
        # Each draw is used once: its graph is gone after a backward pass
        drawn, self._drawn = self._drawn, None
        assert drawn is not None
        return self.settled(drawn + 0.0 * self.log_a)

    def without_noise(self) -> Tensor:
        return self.settled((self.chance > 0).to(self.log_a.dtype))

    def probability_open(self) -> Tensor:
        return self.settled(self.chance.to(self.log_a.dtype))

    def use_draw(self, uniform: Tensor | None) -> None:
        super().use_draw(uniform)
        self._drawn = None

    def extra_repr(self) -> str:
        return f"{self.num_heads}, temperature={self.temperature}, protected={self.protected}"

    def _draw_together(self) -> None:
        """Draw the gates of all heads that share a target."""
        members, number, temperature = self._subset or _Subset([self], self.num_heads, 1.0)
        scores = torch.cat(
            [gate.log_a.masked_fill(gate.is_protected, -math.inf) for gate in members]
        )
        uniform = torch.cat([gate.uniform() for gate in members])
        eps = torch.finfo(scores.dtype).eps
        scores = scores - (-uniform.clamp(eps, 1 - eps).log()).log()
        all_open = number >= sum(gate.num_heads - len(gate.protected) for gate in members)
        opened = torch.ones_like(scores) if all_open else torch.zeros_like(scores)
        for _ in range(0 if all_open else number):
            taken = torch.softmax(scores / temperature, 0)
            opened = opened + taken
            scores = scores + (1 - taken).clamp(min=eps).log()
        for gate, part in zip(members, opened.split([g.num_heads for g in members]), strict=True):
            gate._drawn = part


GATES[SUBSET] = SubsetGate
