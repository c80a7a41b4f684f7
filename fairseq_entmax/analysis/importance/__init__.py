"""How important heads are: relevance that is propagated, and the gradient of the loss."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

# Attention to layer to a number of each head
ByHead = dict[str, dict[int, "Tensor"]]
