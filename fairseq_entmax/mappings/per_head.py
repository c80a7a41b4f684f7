"""Different mappings for the heads of one layer: ``sparsemax|softmax*7``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from fairseq_entmax.mappings.base import Mapping
from fairseq_entmax.mappings.factor import RATIO
from fairseq_entmax.mappings.scripting import ScriptableEntmax, refusal


class PerHeadMapping(Mapping):
    """Several mappings from scores to probabilities, each for one or more heads.

    Learned parameters are named ``parts.0.…``, ``parts.1.…``, in the order of ``parts``.

    Args:
        parts: the mappings, each for as many heads as ``part_of`` says, in the order of heads.
        part_of: for each head the number of its mapping, such as ``(0, 1, 1, 1)``.

    Raises:
        ValueError: a mapping has no head, or a head no mapping.
    """

    parts: Any  # nn.ModuleList of mappings
    _where: Tensor

    def __init__(self, parts: Iterable[Mapping], part_of: Sequence[int]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        if set(part_of) != set(range(len(self.parts))):
            raise ValueError(f"{len(self.parts)} mappings do not match part_of={sorted(part_of)}")
        self.part_of = tuple(part_of)
        # Tells on which device this is, even without parameters
        self.register_buffer("_where", torch.zeros(1, dtype=torch.uint8), persistent=False)

    def forward(self, scores: Tensor) -> Tensor:
        pieces = zip(self.parts, self._heads(), strict=True)
        return self._joined([part(scores[:, _slice(heads)]) for part, heads in pieces], 1)

    def head_values(self) -> dict[str, Tensor]:
        """``(heads,)`` for each name; NaN at heads whose mapping has no such value."""
        values = [part.head_values() for part in self.parts]
        names = dict.fromkeys(name for numbers in values for name in numbers)
        device = self._where.device
        missing = torch.full((1,), torch.nan, dtype=torch.float64, device=device)
        return {
            name: self._of_heads(
                [numbers.get(name, missing).to(device, torch.float64) for numbers in values]
            )
            for name in names
        }

    @property
    def learned(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts for name in part.learned))

    @property
    def changing(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self.parts for name in part.changing))

    @property
    def risen(self) -> float:
        return min(part.risen for part in self.parts)

    def learns(self, name: str) -> list[bool]:
        return [name in self.parts[number].learned for number in self.part_of]

    def changes(self, name: str) -> list[bool]:
        return [name in self.parts[number].changing for number in self.part_of]

    def take_from_all(self, state_dict: dict[str, Any], prefix: str) -> None:
        """Split what one mapping of all heads learned into the heads of each part, under our names.

        Parameters that no part has stay in the state dict; those that only some have do not.
        """
        for number, part in enumerate(self.parts):
            heads = self._heads()[number]
            for name, parameter in part.named_parameters():
                stored = state_dict.get(prefix + name, parameter)
                if stored.shape == (len(self.part_of),) and parameter.shape == (len(heads),):
                    state_dict.setdefault(f"{prefix}parts.{number}.{name}", stored[heads].clone())
                    if prefix + RATIO in state_dict:
                        factor = state_dict[prefix + RATIO]
                        state_dict.setdefault(f"{prefix}parts.{number}.{RATIO}", factor)
        taken = {name for part in self.parts for name, _ in part.named_parameters()}
        for name in (taken | {RATIO}) if taken else ():
            state_dict.pop(prefix + name, None)

    def keep_heads(self, indices: Sequence[int]) -> None:
        part_of = [self.part_of[head] for head in indices]
        used = list(dict.fromkeys(part_of))
        for number in used:
            heads = self._heads()[number]
            remaining = [heads.index(head) for head in indices if self.part_of[head] == number]
            self.parts[number].keep_heads(remaining)
        self.parts = nn.ModuleList(self.parts[number] for number in used)
        self.part_of = tuple(used.index(number) for number in part_of)

    def simplest(self) -> Mapping:
        """The only part, if all heads have the same, as may happen after pruning; else this."""
        return self.parts[0] if len(self.parts) == 1 else self

    def epsilon(self) -> Tensor | None:
        """alpha - 1 of each head, 0 for softmax, if every head's mapping is alpha-entmax."""
        epsilons = [0.0 if part.is_softmax else part.epsilon() for part in self.parts]
        return None if any(one is None for one in epsilons) else self._of_heads(epsilons)

    def score_scale(self) -> Tensor | None:
        scales = [part.score_scale() for part in self.parts]
        return None if all(one is None for one in scales) else self._of_heads(scales)

    def scriptable(self) -> nn.Module:
        for part in self.parts:
            part.exported()  # for its error
        epsilon = self.epsilon() if self.epsilon_holds() else None
        if epsilon is None:
            raise refusal("of a layer that has your own beside others")
        return ScriptableEntmax(epsilon)

    def epsilon_holds(self) -> bool:
        return super().epsilon_holds() and all(part.epsilon_holds() for part in self.parts)

    def extra_repr(self) -> str:
        return f"part_of={self.part_of}"

    def _heads(self) -> list[list[int]]:
        """The heads of each part."""
        return [
            [head for head, part in enumerate(self.part_of) if part == number]
            for number in range(len(self.parts))
        ]

    def _of_heads(self, numbers: list[float | Tensor | None]) -> Tensor:
        """``(heads,)`` from a number per part, 1 for None; on the device, so that no copy waits."""
        pieces = []
        for number, heads in zip(numbers, self._heads(), strict=True):
            if not isinstance(number, Tensor):
                filled = 1.0 if number is None else number
                number = torch.full((1,), filled, dtype=torch.float32, device=self._where.device)
            pieces.append(number.expand(len(heads)))
        return self._joined(pieces, 0)

    def _joined(self, pieces: list[Tensor], dim: int) -> Tensor:
        """Join what the parts return for their heads along ``dim``, in the order of heads."""
        joined = torch.cat(pieces, dim)
        order = [head for heads in self._heads() for head in heads]
        if order == sorted(order):
            return joined
        places = sorted(range(len(order)), key=order.__getitem__)
        return joined.index_select(dim, torch.tensor(places, device=joined.device))


def _slice(heads: list[int]) -> slice | list[int]:
    """A slice if the heads are adjacent, which needs no copy."""
    whole = heads[-1] - heads[0] == len(heads) - 1
    return slice(heads[0], heads[-1] + 1) if whole else heads
