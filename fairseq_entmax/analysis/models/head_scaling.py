"""Running a model with some heads louder, softer, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import Tensor, nn

from fairseq_entmax.attention import MultiheadAttention


@contextlib.contextmanager
def scaled_heads(attention: MultiheadAttention, factor: Tensor) -> Iterator[None]:
    """Multiply what each head gives to the output projection, after gates, by a factor ``(heads,)``
    or ``(batch, heads)``; with 0 a head gives exactly 0. All else is computed as before."""

    is_closed = (factor == 0)[..., None]

    def scale(module: nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        (heads,) = args  # (queries, batch, heads * head_dim)
        # Whatever is there: infinity, as half precision has it, times 0 would be no number
        split = heads.unflatten(-1, (attention.num_heads, -1)).masked_fill(is_closed, 0.0)
        return ((split * factor.to(heads.dtype)[..., None]).flatten(2),)

    hook = attention.out_proj.register_forward_pre_hook(scale)
    try:
        yield
    finally:
        hook.remove()
