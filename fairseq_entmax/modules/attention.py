"""Multihead attention with any mapping from scores to probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention
from torch import Tensor, nn

from fairseq_entmax import compat
from fairseq_entmax.mappings import HeadsApart, Mapping
from fairseq_entmax.modules import fused, incremental, masks
from fairseq_entmax.modules.fused import has_hook
from fairseq_entmax.modules.gates import HardConcreteGate
from fairseq_entmax.modules.projections import keep_first_heads, weighted_sum
from fairseq_entmax.modules.scripting import (
    Scriptable,
    ScriptableAttention,
    with_constants,
)


@dataclass(frozen=True)
class Heads:
    """The heads of one attention in one layer."""

    number: int
    mapping: Mapping | None  # None where there are no heads
    gate: HardConcreteGate | None = None


class MultiheadAttention(Scriptable, FairseqMultiheadAttention):
    """fairseq's multihead attention with its softmax replaced by a mapping.

    fairseq's own forward pass does the projections, the masks, the cache of incremental
    decoding and its reordering, and hands back scores and values; what follows the scores
    is done here.

    Where there are fewer heads than the width has place for, the projections are as much smaller.
    An attention without heads gives the bias of its output projection at every position.

    Args:
        embed_dim: width of the queries and of the output.
        num_heads: number of heads that share the width, which they divide: a head has
            ``embed_dim / num_heads`` dimensions.
        mapping: scores ``(batch, heads, queries, keys)`` to probabilities; None where
            there are no heads.
        kept_heads: number of heads that there are, 0 to ``num_heads``; None for all.
        gate: multiplies the output of each head; None for no gates.
        **options: those of fairseq's ``MultiheadAttention``.

    Attributes:
        num_heads: number of heads that there are.
        filled: parameters that the last loaded state dict did not have, and that kept their values.
        scores_of: heads whose scores stand behind the weights that ``need_head_weights`` returns.

    Raises:
        ValueError: the number of heads, mapping and gate do not fit each other; keys are not words
            alone, where the mapping needs that.
    """

    scriptable_class = ScriptableAttention

    # Linear layers; what stands in for them where there are no heads
    q_proj: Any
    k_proj: Any
    v_proj: Any
    out_proj: Any

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        mapping: Mapping | None,
        kept_heads: int | None = None,
        gate: HardConcreteGate | None = None,
        **options: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        number = num_heads if kept_heads is None else kept_heads
        noise = options.get("q_noise", 0.0), options.get("qn_block_size", 8)
        self._take(Heads(number, mapping, gate), *noise)

    @classmethod
    def replacing(
        cls,
        stock: FairseqMultiheadAttention,
        heads: Heads,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> MultiheadAttention:
        """An attention with all that one of fairseq's has, which is not to be used any more."""
        attention = cls.__new__(cls)
        # All that its constructor made, whichever arguments this fairseq's has
        attention.__dict__.update(stock.__dict__)
        attention._take(heads, q_noise, qn_block_size)
        return attention

    def _take(self, heads: Heads, q_noise: float, block_size: int) -> None:
        """Have these heads, in the place of as many or more."""
        if heads.number != self.num_heads:
            if not 0 <= heads.number < self.num_heads:
                raise ValueError(
                    f"an attention keeps 0 to {self.num_heads} heads, not {heads.number}"
                )
            if self.bias_k is not None:
                raise ValueError("an attention with add_bias_kv keeps all its heads")
            keep_first_heads(self, heads.number, q_noise, block_size)
        mapping, gate = heads.mapping, heads.gate
        if (mapping is None) != (self.num_heads == 0):
            raise ValueError(f"{self.num_heads} heads do not fit the mapping {mapping!r}")
        if gate is not None and gate.num_heads != self.num_heads:
            raise ValueError(f"{self.num_heads} heads do not fit {gate.num_heads} gates")
        has_more_keys = self.bias_k is not None or self.add_zero_attn
        if mapping is not None and mapping.needs_words_alone and has_more_keys:
            option = "add_zero_attn" if self.bias_k is None else "add_bias_kv"
            raise ValueError(
                f"an attention with {option} has a key that is no word, and no place for a mapping "
                f"by the order and number of words, such as fusedmax: drop {option}, or use another "
                f"mapping than {type(mapping).__name__}"
            )
        self.mapping = mapping
        self.gate = gate
        self.filled: list[str] = []
        self.scores_of: tuple[int, ...] = ()
        self._observers: list[Callable[[Tensor], None]] = []
        # Otherwise fairseq calls torch's fused attention, which never shows the scores
        self.skip_embed_dim_check = True

    def scriptable_form(self) -> FairseqMultiheadAttention:
        """Attention that ``torch.jit.script`` and ONNX take, with these parameters, for inference."""
        return with_constants(self, super().scriptable_form())

    @contextmanager
    def observed(self, observer: Callable[[Tensor], None]) -> Iterator[None]:
        """Call ``observer`` with the weights of each call while this is open.

        They are ``(batch, heads, queries, keys)``, before dropout and gates, float32 (float64 for
        a float64 model). Kernels that never hold weights stand back meanwhile.
        """
        self._observers.append(observer)
        try:
            yield
        finally:
            self._observers.remove(observer)

    def forward(
        self,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        key_padding_mask: Tensor | None = None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        need_weights: bool = True,
        static_kv: bool = False,
        attn_mask: Tensor | None = None,
        before_softmax: bool = False,
        need_head_weights: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend; arguments are those of fairseq's attention.

        Queries are ``(queries, batch, embed_dim)``, keys and values ``(keys, batch, kdim or vdim)``,
        or None where the cache has them; ``key_padding_mask`` ``(batch, keys)``; ``attn_mask``
        ``(queries, keys)``, added to the scores.

        Returns:
            The output ``(queries, batch, embed_dim)``, and the weights as probabilities
            before dropout and gates in float32 (float64 for a float64 model): ``(batch,
            queries, keys)``, or ``(heads, batch, queries, keys)`` with ``need_head_weights``, or
            None. Without heads they are 0, in one head. Behind the weights of all heads stand the
            scores of those in ``scores_of``. Scores and values with ``before_softmax``.
        """
        if self.mapping is None:
            return self._without_heads(query, key, need_weights, need_head_weights)
        if incremental_state is not None:
            scores_too = before_softmax or (need_head_weights and bool(self.scores_of))
            if attn_mask is None and not scores_too and not self._is_watched():
                wants = need_weights or need_head_weights
                found = incremental.attend(
                    self, query, key, key_padding_mask, incremental_state, static_kv, wants
                )
                if found is not None:
                    return self._output(found[0]), _asked(found[1], need_weights, need_head_weights)
            incremental.as_fairseq_reads(self, incremental_state)
        is_whole = key is not None and incremental_state is None and not static_kv
        asks_more = before_softmax or need_head_weights
        if is_whole and not asks_more and self._is_fairseqs(key_padding_mask, attn_mask):
            # With torch's fused attention, so that a model with softmax is fairseq's to the bit
            self.skip_embed_dim_check = False
            try:
                return super().forward(
                    query, key, value, key_padding_mask, None, need_weights, attn_mask=attn_mask
                )
            finally:
                self.skip_embed_dim_check = True
        wants_weights = need_weights or need_head_weights or before_softmax or self._is_watched()
        if key is not None and incremental_state is None and not wants_weights:
            heads = fused.attend(self, query, key, value, key_padding_mask, attn_mask)
            if heads is not None:
                return self._output(heads), None
        scores, values = super().forward(
            query,
            key,
            value,
            key_padding_mask=key_padding_mask,
            incremental_state=incremental_state,
            static_kv=static_kv,
            attn_mask=attn_mask,
            before_softmax=True,
        )
        if before_softmax:
            return scores, values
        query_length, batch = query.size(0), query.size(1)
        wide = scores if scores.dtype == torch.float64 else scores.float()
        wide = wide.view(batch, self.num_heads, query_length, -1)
        probs = self.mapping(wide)
        for observer in self._observers:
            observer(probs)
        output = self._output(weighted_sum(self.dropout_module(probs.to(scores.dtype)), values))
        if need_head_weights and self.scores_of:
            # As a result of the layer, which --checkpoint-activations gives gradients
            probs = torch.cat([probs, wide[:, list(self.scores_of)]], 1)
        return output, _asked(probs, need_weights, need_head_weights)

    def reorder_incremental_state(
        self,
        incremental_state: dict[str, dict[str, Tensor | None]] | None,
        new_order: Tensor,
    ) -> dict[str, dict[str, Tensor | None]] | None:
        """Select hypotheses in the cache of incremental decoding, as fairseq does."""
        if incremental.reorder(self, incremental_state, new_order):
            return incremental_state
        reordered: Any = super().reorder_incremental_state(incremental_state, new_order)
        return reordered

    def _is_watched(self) -> bool:
        """Whether somebody sees the weights, or has changed the mapping, as by torch's hooks."""
        mapping: Any = self.mapping
        return bool(
            self._observers
            or any(map(has_hook, mapping.modules()))
            or not mapping.is_fused_forward()
            or compat.has_global_hooks()
        )

    def _is_fairseqs(self, key_padding_mask: Tensor | None, attn_mask: Tensor | None) -> bool:
        """Whether fairseq's own attention does all that this one would, and just that.

        It has no gates, gives NaN to a query without keys, and reads the weights of projections.
        """
        projections = (self.q_proj, self.k_proj, self.v_proj, self.out_proj)
        return bool(
            self.mapping is not None
            and self.mapping.is_softmax
            and self.gate is None
            and self.num_heads * self.head_dim == self.embed_dim
            and not self._is_watched()
            and not any(map(_is_changed, projections))
            and masks.leave_each_query_a_key(key_padding_mask, attn_mask)
        )

    def _output(self, heads: Tensor) -> Tensor:
        """Gate ``(batch, heads, queries, head_dim)`` and project it to ``(queries, batch, embed_dim)``."""
        if self.gate is not None:
            heads = heads * self.gate().to(heads.dtype).view(1, -1, 1, 1)
        batch, _, queries, _ = heads.shape
        return self.out_proj(heads.permute(2, 0, 1, 3).reshape(queries, batch, -1))

    def _without_heads(
        self, query: Tensor, key: Tensor | None, need_weights: bool, need_head_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        """What is left of an attention that lost all its heads."""
        output: Tensor = self.out_proj()
        if not need_weights and not need_head_weights:
            return output.expand_as(query), None
        keys = query.size(0) if key is None else key.size(0)
        wide = torch.float64 if query.dtype == torch.float64 else torch.float32
        weights = query.new_zeros((query.size(1), query.size(0), keys), dtype=wide)
        return output.expand_as(query), weights[None] if need_head_weights else weights

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Keep the present value of what the mapping learns where a checkpoint lacks it."""
        if isinstance(self.mapping, HeadsApart):
            self.mapping.take_from_all(state_dict, f"{prefix}mapping.")
        if self.mapping is not None:
            # What is filled in is stored by our own factor
            self.mapping.convert(state_dict, f"{prefix}mapping.")
        learned = [] if self.mapping is None else self.mapping.named_parameters(f"{prefix}mapping")
        self.filled = compat.fill_in(state_dict, learned)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def _is_changed(projection: Any) -> bool:
    """Whether a projection is more, or other, than its weights."""
    return has_hook(projection) or not isinstance(projection.weight, nn.Parameter)


def _asked(probs: Tensor | None, averaged: bool, of_heads: bool) -> Tensor | None:
    """Weights ``(batch, heads, queries, keys)`` as they are returned, or None."""
    if probs is None or not (averaged or of_heads):
        return None
    return probs.transpose(0, 1) if of_heads else probs.mean(dim=1)
