"""The importance of heads, by relevance propagation and by the gradient of the loss."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# Attention to layer to a number for each head
ByHead = dict[str, dict[int, "Tensor"]]
