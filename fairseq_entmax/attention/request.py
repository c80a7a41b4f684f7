"""The request that one call of attention makes."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

# What a call returns: the output and weights, or scores and values if those are asked for
Answer = tuple[Tensor, "Tensor | None"]


class Request(NamedTuple):
    """The arguments of fairseq's attention, in its order.

    Attributes:
        query: ``(queries, batch, embed_dim)``.
        key, value: ``(keys, batch, kdim or vdim)``, or None if they are in the cache.
        key_padding_mask: ``(batch, keys)``; one without dimensions masks nothing.
        incremental_state: the caches of incremental decoding; None for whole sequences.
        static_kv: whether a cache that has any keys has all of them.
        attn_mask: ``(queries, keys)``, added to the scores; if boolean, true at keys to hide.
        before_softmax: whether to stop at the scores and values, and return these.
        need_weights, need_head_weights: whether to return the mean of the heads' weights, or all.
    """

    query: Tensor
    key: Tensor | None
    value: Tensor | None
    key_padding_mask: Tensor | None = None
    incremental_state: dict[str, dict[str, Any]] | None = None
    need_weights: bool = True
    static_kv: bool = False
    attn_mask: Tensor | None = None
    before_softmax: bool = False
    need_head_weights: bool = False

    @property
    def wants_weights(self) -> bool:
        return self.need_weights or self.need_head_weights

    def select_weights(self, probs: Tensor) -> Tensor | None:
        """Give weights ``(batch, heads, queries, keys)`` the form that is asked for, or None."""
        if not self.wants_weights:
            return None
        return probs.transpose(0, 1) if self.need_head_weights else probs.mean(dim=1)
