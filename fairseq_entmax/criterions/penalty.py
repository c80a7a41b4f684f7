"""The penalty on open heads, with a given weight, or steered to a given number of heads.

With a weight lambda the penalty is ``lambda C``, where ``C`` is the expected number of open
heads, the sum of P(g != 0). Source: Voita et al. 2019, section 6.

With a budget of N heads it is the term of an augmented Lagrangian, ``mu (C - t) + rho / 2 K e^2``
with ``e = (C - t) / K`` for K heads. The target t falls from the expected number of heads at
the start to N in equal steps, and each update adds ``eta e`` to the multiplier mu. So mu
settles at the weight lambda that holds C at N. Sources: Wang, Wohlwend, Lei 2020,
*Structured Pruning of Large Language Models* (the Lagrangian of an L0 penalty and the moving
target); Hestenes 1969, *Multiplier and Gradient Methods* (mu moves by the violation).

C is only an expectation. So at a given update the heads are decided: the N heads of largest
score, ``log a``, get gate 1, the others gate 0, and the model adapts in the rest of training.

Protected heads are always open and cost nothing: K and C count only the others, and the target
is N less the number of protected heads.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping as Dictionary
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairseq_entmax import command_errors
from fairseq_entmax.attention.gates import Gate
from fairseq_entmax.attention.pruning_state import PruningState
from fairseq_entmax.attentions import ATTENTIONS

# Gates by attention and layer number
GatesByLayer = Dictionary[str, Dictionary[int, Gate]]

ALL = "all"
RHO = 1.0


# Which heads behind a gate count, or how much
COUNTED: dict[str, Callable[[Gate], Tensor]] = {
    "expected": lambda gate: gate.probability_open(),
    "open": lambda gate: gate.at_evaluation() > 0,
    "undecided": lambda gate: (gate.at_evaluation() > 0) & (gate.at_evaluation() < 1),
}


@torch.no_grad()
def count_heads(what: str, *gates: Gate) -> float:
    """How many heads behind some gates are ``what`` of :data:`COUNTED`. Waits for the device."""
    return round(float(sum(COUNTED[what](gate).sum() for gate in gates)), 3)


@dataclass(frozen=True)
class HeadPenalty:
    """The penalty on the open heads of a model.

    ``targets`` are the numbers of heads to keep in each attention that is named, or, under the
    name ``"all"``, in all gated attentions together; None for a fixed weight.
    """

    weight: float = 0.0  # lambda; 0 if there are targets
    targets: Dictionary[str, int] | None = None
    warmup_updates: int = 0  # until the weight, or the target, has its final value
    decide_at: int | None = None  # the update at which the heads are decided
    multiplier_lr: float = 0.02  # eta

    def check(self, gates: GatesByLayer) -> None:
        """Raise ValueError if the gates do not suit the targets, or need targets not given."""
        if self.targets is None and any(gate.needs_target for gate in _all(gates)):
            raise ValueError(
                "--gate subset keeps a given number of heads: give --target-heads instead of --l0-weight"
            )
        for name, target in (self.targets or {}).items():
            members = _all(gates) if name == ALL else list(gates.get(name, {}).values())
            number, protected = _sizes(members)
            if not number:
                raise ValueError(
                    f"--target-heads names {name}, which has no gates in this model: add "
                    f"it to --head-gates, or leave it out"
                )
            if target < protected:
                raise ValueError(
                    f"--target-heads asks for {target} heads in {name}, but {protected} copy "
                    f"heads always stay: give {protected} or more"
                )
            if target > number:
                raise ValueError(
                    f"--target-heads asks for {target} heads in {name}, but only "
                    f"{number} have gates: give {number} or less"
                )

    def advance(self, gates: GatesByLayer, state: PruningState, updates: int) -> None:
        """Bring multipliers and decisions to their state after ``updates`` updates.

        A smaller number than before means a new training that starts from an already trained model:
        the state is reset, and all gates learn again."""
        if updates < state.updates:
            state.forget()
            for gate in _all(gates):
                gate.decide(None)
        progress = 1.0 if not self.decide_at else min(1.0, updates / self.decide_at)
        for group in self._groups(gates):
            number = group.num_free + (group.free_target - group.num_free) * self._share(updates)
            type(group.gates[0]).steer(group.gates, number, progress)
        if not state.is_known:
            with command_errors.stopping_command():
                self._check_decided(gates)
            self._begin(gates, state)
            state.set_updates(state.updates)
        if updates > state.updates:
            for group in self._groups(gates):
                violation = self._violation(group, state, updates).detach().to(state.multipliers)
                state.multipliers[group.places] += self.multiplier_lr * violation
            state.set_updates(updates)
        if self.decide_at is not None and updates >= self.decide_at and not state.is_decided:
            self.decide(gates)
            state.is_decided = True

    def __call__(self, gates: GatesByLayer, state: PruningState) -> Tensor:
        """The penalty in training: a scalar, per unit of the sample size."""
        if self.targets is None:
            return self.weight * self._share(state.updates) * _expected(_all(gates))
        penalties = []
        for group in self._groups(gates):
            violation = self._violation(group, state, state.updates)
            multiplier = state.multipliers[group.places[0]].to(violation)
            penalties.append(
                group.num_free * (multiplier * violation + RHO / 2 * violation.square())
            )
        return torch.stack(penalties).sum()

    def at_validation(self, gates: GatesByLayer) -> Tensor:
        """The penalty in validation, the same all through training: a scalar.

        It is lambda times the expected number of open heads; 0 with targets."""
        return self.weight * _expected(_all(gates)).detach()

    def decide(self, gates: GatesByLayer) -> None:
        """Decide all gates, unless they already are: with a budget, its heads of largest score open
        and the others close; without one, each gate takes the nearer of 0 and 1 in evaluation."""
        if all(gate.is_decided for gate in _all(gates)):
            return
        for gate in _all(gates):
            gate.decide(gate.at_evaluation() >= 0.5)
        for group in self._groups(gates):
            scores = torch.cat([gate.score() for gate in group.gates])
            order = torch.argsort(scores, descending=True, stable=True)
            is_open = torch.zeros_like(scores, dtype=torch.bool)
            is_open[order[: group.target]] = True
            parts = is_open.split([gate.num_heads for gate in group.gates])
            for gate, part in zip(group.gates, parts, strict=True):
                gate.decide(part)

    def weights(self, state: PruningState) -> dict[str, float]:
        """The current lambda or multipliers, by attention or for ``"all"``."""
        if self.targets is None:
            return {ALL: self.weight * self._share(state.updates)}
        values = state.multipliers.tolist()
        return {name: values[0 if name == ALL else ATTENTIONS.index(name)] for name in self.targets}

    def _check_decided(self, gates: GatesByLayer) -> None:
        """Refuse a target that the heads which an earlier process decided on do not have."""
        for group in self._groups(gates):
            number = int(count_heads("open", *group.gates))
            if all(gate.is_decided for gate in group.gates) and number != group.target:
                raise ValueError(
                    f"--target-heads asks for {group.target} heads in {group.name}, but this training "
                    f"has already decided on {number}: give {number} to continue it; to search "
                    f"again, give its checkpoint to --finetune-from-model, with another --save-dir"
                )

    def _begin(self, gates: GatesByLayer, state: PruningState) -> None:
        """Note the expected number of heads at the start, unless an earlier process has."""
        if self.targets is None:
            return
        if bool(state.start[1] < 0) != (ALL in self.targets):
            state.start.zero_()
        for group in self._groups(gates):
            first = group.places[0]
            if state.start[first] <= 0:
                state.start[group.places] = -1
                state.start[first] = _expected(group.gates).detach().to(state.start)

    def _share(self, updates: int) -> float:
        """The share of the way to the final weight or target that is done, 0 to 1."""
        return min(1.0, updates / self.warmup_updates) if self.warmup_updates else 1.0

    def _violation(self, group: _Group, state: PruningState, updates: int) -> Tensor:
        """e: how far the expected number of heads is above its current target, per head."""
        start = state.start[group.places[0]]
        target = start + (group.free_target - start) * self._share(updates)
        expected = _expected(group.gates)
        return (expected - target.to(expected)) / max(1, group.num_free)

    def _groups(self, gates: GatesByLayer) -> list[_Group]:
        groups = []
        for name, target in (self.targets or {}).items():
            names = ATTENTIONS if name == ALL else (name,)
            members = [gate for each in names for gate in gates.get(each, {}).values()]
            number, protected = _sizes(members)
            places = [ATTENTIONS.index(each) for each in names]
            sizes = target, number - protected, target - protected
            groups.append(_Group(name, members, places, *sizes))
        return groups


class _Group(NamedTuple):
    """Gates that share a target."""

    name: str  # an attention, or "all"
    gates: list[Gate]
    places: list[int]  # their indices in the buffers of the state
    target: int
    num_free: int  # heads that a gate can close
    free_target: int  # how many of these are to stay open


def _sizes(gates: list[Gate]) -> tuple[int, int]:
    """The number of heads, and the number of protected ones among them."""
    return sum(gate.num_heads for gate in gates), sum(len(gate.protected) for gate in gates)


def _all(gates: GatesByLayer) -> list[Gate]:
    return [gate for layers in gates.values() for gate in layers.values()]


def _expected(gates: list[Gate]) -> Tensor:
    """C: the expected number of open heads, not counting protected ones."""
    return torch.cat(
        [gate.probability_open().masked_fill(gate.is_protected, 0.0) for gate in gates]
    ).sum()
