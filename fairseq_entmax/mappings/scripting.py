"""Mappings as modules for ``torch.jit.script`` and ONNX, with constant numbers.

:meth:`fairseq_entmax.mappings.Mapping.scriptable` makes them.
"""

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
    """Alpha-entmax with constant alpha - 1: a number from 0 to 1, ``(heads,)``, or ``(1,)`` for all."""

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


def refusal(name: str) -> ValueError:
    """The error that a mapping of this name has no such module."""
    return ValueError(
        f"the mapping {name} cannot be scripted or exported: softmax, sparsemax, entmax15 and entmax "
        f"without a penalty can, and so can your own mapping if it defines scriptable(); "
        f"without torch.jit and ONNX every mapping works"
    )
