"""Attention that pools the words of a text into one vector, with any mapping."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from fairseq_entmax.mappings import Mapping


class AttentionPooling(nn.Module):
    """The words of a text, weighted by multihead attention, as one vector.

    The query is learned, one for each head; or it is a vector of each text, as of another text
    that it is compared with. Scores are scaled dot products (Vaswani et al. 2017, section 3.2).

    Args:
        embed_dim: width of the words and of the result.
        num_heads: number of heads that share the width.
        mapping: scores ``(batch, heads, 1, words)`` to probabilities.
        takes_query: whether :meth:`forward` gets the query; without it, it is learned.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, mapping: Mapping, takes_query: bool = False
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.mapping = mapping
        self.scaling = (embed_dim // num_heads) ** -0.5
        self.query: nn.Parameter | None = None
        self.q_proj: nn.Linear | None = None
        if takes_query:
            self.q_proj = _linear(embed_dim)
        else:
            self.query = nn.Parameter(torch.empty(num_heads, embed_dim // num_heads))
            nn.init.normal_(self.query)
        self.k_proj, self.v_proj, self.out_proj = (_linear(embed_dim) for _ in range(3))

    def forward(
        self, states: Tensor, is_key: Tensor, query: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Pool.

        Args:
            states: of the words ``(words, batch, embed_dim)``.
            is_key: ``(batch, words)``, true at words that may be attended to, one of each text at
                the least.
            query: ``(batch, embed_dim)``, where the query is not learned.

        Returns:
            The result ``(batch, embed_dim)``, and the weights ``(batch, heads, words)`` in float32
            (float64 for a float64 model), 0 where ``is_key`` is false.
        """
        words, batch, width = states.shape
        shape = words, batch, self.num_heads, width // self.num_heads
        keys, values = self.k_proj(states).view(shape), self.v_proj(states).view(shape)
        if self.q_proj is not None:
            assert query is not None
            queries = self.q_proj(query).view(shape[1:])
        else:
            assert self.query is not None
            queries = self.query.expand(shape[1:]).to(keys.dtype)
        scores = torch.einsum("bhd,wbhd->bhw", queries * self.scaling, keys)
        wide = scores if scores.dtype == torch.float64 else scores.float()
        wide = wide.masked_fill(~is_key[:, None], -math.inf)
        weights: Tensor = self.mapping(wide[:, :, None]).squeeze(2)
        pooled = torch.einsum("bhw,wbhd->bhd", weights.to(values.dtype), values)
        return self.out_proj(pooled.reshape(batch, width)), weights


def _linear(width: int) -> nn.Linear:
    """A projection that starts as those of fairseq's attention do."""
    linear = nn.Linear(width, width)
    nn.init.xavier_uniform_(linear.weight)
    nn.init.zeros_(linear.bias)
    return linear
