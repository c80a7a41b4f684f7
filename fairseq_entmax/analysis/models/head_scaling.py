"""Scale the output of heads, or remove it, while a model runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import Tensor, nn

from fairseq_entmax.attention import MultiheadAttention


@contextlib.contextmanager
def scaled_heads(attention: MultiheadAttention, factor: Tensor) -> Iterator[None]:
    """Multiply each head's output, after its gate and before the output projection, by a factor
    ``(heads,)`` or ``(batch, heads)``. A factor of 0 gives exactly 0. Nothing else changes."""

    is_closed = (factor == 0)[..., None]

    def scale(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        (heads,) = args  # (queries, batch, heads * head_dim)
        # Masked, not multiplied by 0: in half precision heads may be infinite, and 0 * inf is NaN
        split = heads.unflatten(-1, (attention.num_heads, -1)).masked_fill(is_closed, 0.0)
        return ((split * factor.to(heads.dtype)[..., None]).flatten(2),)

    hook = attention.out_proj.register_forward_pre_hook(scale)
    try:
        yield
    finally:
        hook.remove()
