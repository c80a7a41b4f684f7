"""Mappings as modules for ``torch.jit.script`` and ONNX, with constant numbers.

:meth:`fairseq_entmax.mappings.Mapping.scriptable` makes them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import torch
from torch import Tensor, nn

from fairseq_entmax.kernels.scripting import entmax_rows, softmax_rows
from fairseq_entmax.kernels.torch_ops import SMALLEST_EPSILON


class ScriptableSoftmax(nn.Module):
    """Softmax, with zeros in a row whose keys are all masked."""

    def forward(self, scores: Tensor) -> Tensor:
        """Map ``(batch, heads, queries, keys)`` to probabilities of the same shape."""
        return softmax_rows(scores)


class ScriptableEntmax(nn.Module):
    """Alpha-entmax with constant alpha - 1: a number up to 1, ``(heads,)``, or ``(1,)`` for all."""

    epsilon: Tensor
    smallest: Final[float]

    def __init__(self, epsilon: float | Tensor) -> None:
        super().__init__()
        self.smallest = SMALLEST_EPSILON
        epsilon = torch.as_tensor(epsilon).detach().view(-1, 1, 1)
        self.register_buffer("epsilon", epsilon, persistent=False)

    def forward(self, scores: Tensor) -> Tensor:
        """Map ``(batch, heads, queries, keys)`` to probabilities of the same shape."""
        # Here, as a module that was cast to half precision has rounded it to 0
        return entmax_rows(scores, self.epsilon.to(scores.dtype).clamp(min=self.smallest))


class ScriptablePerHeadMapping(nn.Module):
    """The heads of one layer: head ``i`` has the mapping of part ``part_of[i]``."""

    heads: Tensor
    places: Tensor

    def __init__(self, parts: Iterable[nn.Module], part_of: Sequence[int]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.sizes = [part_of.count(number) for number in range(len(self.parts))]
        heads = torch.tensor(sorted(range(len(part_of)), key=part_of.__getitem__))
        self.register_buffer("heads", heads, persistent=False)
        self.register_buffer("places", heads.argsort(), persistent=False)

    def forward(self, scores: Tensor) -> Tensor:
        """Map ``(batch, heads, queries, keys)`` to probabilities of the same shape."""
        pieces = scores.index_select(1, self.heads).split(self.sizes, 1)
        probs = []
        for number, part in enumerate(self.parts):
            probs.append(part(pieces[number]))
        return torch.cat(probs, 1).index_select(1, self.places)


def refusal(name: str) -> ValueError:
    """The error that a mapping of this name has no such module."""
    return ValueError(
        f"the mapping {name} cannot be scripted or exported: softmax, sparsemax, entmax15 and entmax "
        f"without a penalty can, and so can your own mapping if it defines scriptable(); "
        f"without torch.jit and ONNX every mapping works"
    )
