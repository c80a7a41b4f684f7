"""Gates of which exactly k are open: differentiable subset pruning.

Sources: Li, Cotterell, Sachan 2021, *Differentiable Subset Pruning of Transformer Heads*; Xie, Ermon
2019, *Reparameterizable Subset Sampling via Continuous Relaxations* (the relaxed subset).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.attention.gates import LOWEST_TEMPERATURE, Gate, register_gate


class SubsetGate(Gate):
    """Gates of which k are open, by the scores ``log a`` of all heads that share a target.

    In training, Gumbel noise is added to the scores. A softmax with a temperature is taken k times,
    each without what earlier ones took, and a gate is the sum of what it got: the gates sum to k.
    As the temperature falls to 0.01 they become 0 and 1; before, one may be above 1, up to 2. In
    evaluation the k largest scores have the gate 1, all others 0. The penalty sets k, which falls
    from all heads to ``--target-heads``; before it has set k, all heads are open.

    Attributes:
        chosen: ``(num_heads,)``, saved in checkpoints: 1 for heads open in evaluation, else 0.
    """

    chosen: Tensor
    _part: Tensor  # of each chosen head, in [0, 1]: k falls by fractions of a head
    needs_target = draws_together = True

    def __init__(self, num_heads: int, **options: Any) -> None:
        super().__init__(num_heads, **options)
        self.register_buffer("chosen", torch.ones(num_heads, dtype=torch.int8))
        self.register_buffer("_part", torch.ones(num_heads), persistent=False)
        # What one draw needs: the gates that share it, k, and the temperature
        self._subset: tuple[Sequence[SubsetGate], int, float] = (
            [self],
            num_heads,
            self.temperature,
        )
        self._drawn: Tensor | None = None

    @classmethod
    def steer(cls, gates: Sequence[SubsetGate], number: float, progress: float) -> None:
        # Decided gates do not depend on the draw: all open is the cheapest
        drawn = math.ceil(number) if progress < 1 else sum(gate.num_heads for gate in gates)
        fall = LOWEST_TEMPERATURE / gates[0].temperature
        subset = (gates, drawn, gates[0].temperature * fall**progress)
        order = _together(gates).argsort(descending=True, stable=True)
        parts = _apart((number - order.argsort()).clamp(0.0, 1.0), gates)
        for gate, part in zip(gates, parts, strict=True):
            gate._subset = subset
            gate._part.copy_(part)
            gate.chosen.copy_(part > 0)

    def sample(self) -> Tensor:
        if self._drawn is None:
            self._draw_together()
        # Each draw is used once: its graph is gone after a backward pass
        drawn, self._drawn = self._drawn, None
        assert drawn is not None
        return self.with_decisions(drawn + 0.0 * self.log_a)

    def without_noise(self) -> Tensor:
        return self.with_decisions(self.chosen.to(self.log_a.dtype))

    def probability_open(self) -> Tensor:
        return self.with_decisions((self.chosen * self._part).to(self.log_a.dtype))

    def use_draw(self, uniform: Tensor | None) -> None:
        super().use_draw(uniform)
        self._drawn = None

    def _draw_together(self) -> None:
        """Draw the gates of all heads that share a target."""
        gates, number, temperature = self._subset
        scores = _together(gates)
        uniform = torch.cat([gate.uniform() for gate in gates])
        eps = torch.finfo(scores.dtype).eps
        scores = scores - (-uniform.clamp(eps, 1 - eps).log()).log()
        all_open = number >= sum(gate.num_heads - len(gate.protected) for gate in gates)
        opened = torch.full_like(scores, float(all_open))
        for _ in range(0 if all_open else number):
            taken = torch.softmax(scores / temperature, 0)
            opened = opened + taken
            scores = scores + (1 - taken).clamp(min=torch.finfo(scores.dtype).tiny).log()
        for gate, part in zip(gates, _apart(opened, gates), strict=True):
            gate._drawn = part


def _together(gates: Sequence[Gate]) -> Tensor:
    """The scores of all heads, with -inf for protected ones, which do not count towards k."""
    return torch.cat([gate.log_a.masked_fill(gate.is_protected, -math.inf) for gate in gates])


def _apart(values: Tensor, gates: Sequence[Gate]) -> Sequence[Tensor]:
    return values.split([gate.num_heads for gate in gates])


register_gate("subset", SubsetGate)
