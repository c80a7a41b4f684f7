"""The parts of an attention module: projections, heads, mapping and gates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fairseq.modules import MultiheadAttention as FairseqMultiheadAttention
from torch import Tensor

from fairseq_entmax import compat
from fairseq_entmax.attention.gates import Gate
from fairseq_entmax.attention.projections import keep_first_heads
from fairseq_entmax.attention.scripting import Scriptable, with_constants
from fairseq_entmax.mappings import Mapping, PerHeadMapping


@dataclass(frozen=True)
class Heads:
    """The heads of one attention in one layer."""

    number: int
    mapping: Mapping | None  # None if there are no heads
    gate: Gate | None = None


class AttentionWithHeads(Scriptable, FairseqMultiheadAttention):
    """Base class: fairseq's multihead attention with other heads, but no forward pass for them."""

    # Linear layers, or their stand-ins if there are no heads
    q_proj: Any
    k_proj: Any
    v_proj: Any
    out_proj: Any

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        mapping: Mapping | None,
        remaining_heads: int | None = None,
        gate: Gate | None = None,
        **options: Any,
    ) -> None:
        super().__init__(embed_dim, num_heads, **options)
        number = num_heads if remaining_heads is None else remaining_heads
        noise = options.get("q_noise", 0.0), options.get("qn_block_size", 8)
        self._take(Heads(number, mapping, gate), *noise)

    @classmethod
    def replacing(
        cls,
        stock: FairseqMultiheadAttention,
        heads: Heads,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
    ) -> AttentionWithHeads:
        """Make an attention that takes over all of ``stock``, which must not be used afterwards."""
        attention = cls.__new__(cls)
        # Everything that its constructor made, whatever arguments it takes in this fairseq
        attention.__dict__.update(stock.__dict__)
        attention._take(heads, q_noise, qn_block_size)
        return attention

    def _take(self, heads: Heads, q_noise: float, block_size: int) -> None:
        """Replace the present heads by these, which are as many or fewer."""
        if self.bias_k is not None or self.add_zero_attn:
            raise ValueError(
                "add_bias_kv and add_zero_attn add a key that is not a token: leave them out"
            )
        if heads.number != self.num_heads:
            if not 0 <= heads.number < self.num_heads:
                raise ValueError(
                    f"an attention can keep 0 to {self.num_heads} heads, not {heads.number}"
                )
            keep_first_heads(self, heads.number, q_noise, block_size)
        mapping, gate = heads.mapping, heads.gate
        if (mapping is None) != (self.num_heads == 0):
            raise ValueError(f"{self.num_heads} heads do not match the mapping {mapping!r}")
        if gate is not None and gate.num_heads != self.num_heads:
            raise ValueError(f"{self.num_heads} heads do not match {gate.num_heads} gates")
        self.mapping = mapping
        self.gate = gate
        self.filled: list[str] = []
        self.scores_of: tuple[int, ...] = ()
        self._observers: list[Callable[[Tensor], None]] = []

    def scriptable_form(self) -> FairseqMultiheadAttention:
        """Attention with these parameters for inference by ``torch.jit.script`` and ONNX."""
        return with_constants(self, super().scriptable_form())

    @contextmanager
    def observed(self, observer: Callable[[Tensor], None]) -> Iterator[None]:
        """Call ``observer`` with the attention weights of each call within the block.

        They are ``(batch, heads, queries, keys)``, before dropout and gates, float32 (float64 for
        a float64 model). Kernels that never hold the weights are not used meanwhile.
        """
        self._observers.append(observer)
        try:
            yield
        finally:
            self._observers.remove(observer)

    def queries(self, query: Tensor) -> Tensor:
        """Queries ``(queries, batch, width of the heads)`` for a kernel, scaled by the mapping."""
        mapping: Any = self.mapping
        projected, scale = self.q_proj(query), mapping.score_scale()
        if isinstance(scale, Tensor) and scale.numel() > 1:
            scale = scale.repeat_interleave(self.head_dim)
        return projected if scale is None else (projected * scale).to(projected.dtype)

    def keys_and_values(
        self, query: Tensor, key: Tensor | None, value: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Keys and values ``(keys, batch, width of the heads)``, projected as in fairseq."""
        if self.self_attention:
            key = value = query
        elif self.encoder_decoder_attention:
            value = key
        return self.k_proj(key), self.v_proj(value)

    def is_observed(self) -> bool:
        """Whether anything, such as a torch hook, sees the weights or has changed the mapping."""
        mapping: Any = self.mapping
        is_hooked = self._observers or compat.has_global_hooks()
        return bool(is_hooked) or not mapping.epsilon_holds()

    def output(self, heads: Tensor) -> Tensor:
        """Gate concatenated heads ``(queries, batch, width)`` and project them to ``embed_dim``."""
        gate = self.gate
        if gate is not None:
            apart = heads.unflatten(2, (self.num_heads, -1))
            heads = (apart * gate().to(heads.dtype)[:, None]).flatten(2)
        return self.out_proj(heads)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any
    ) -> None:
        """Keep the present parameters of the mapping that a checkpoint lacks."""
        if isinstance(self.mapping, PerHeadMapping):
            self.mapping.take_from_all(state_dict, f"{prefix}mapping.")
        if self.mapping is not None:
            # First, because the values filled in below are already stored by our own factor
            self.mapping.convert(state_dict, f"{prefix}mapping.")
        learned = [] if self.mapping is None else self.mapping.named_parameters(f"{prefix}mapping")
        self.filled = compat.fill_in(state_dict, learned)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
