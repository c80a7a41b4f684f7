"""The sentences of a batch, as the measures of attention need them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from fairseq_entmax.analysis.annotations.annotated import AnnotatedBatch
from fairseq_entmax.analysis.tokens import TokenTable
from fairseq_entmax.attentions import DECODER_SELF, ENCODER_SELF

# How far behind a query's own token, which was said last, the words around its step are
AROUND = {"last": 0, "now": 1, "next": 2}


@dataclass(frozen=True)
class Side:
    """The tokens ``(batch, length)`` of one language in a batch, as attention has them.

    ``end``: ends of sentences, and other symbols that are no words. ``start``: the padding on the
    left. ``words``: of :meth:`TokenTable.words`; None where nothing is known of the tokens."""

    tokens: Tensor
    real: Tensor
    end: Tensor
    start: Tensor
    lengths: Tensor
    words: Tensor | None

    @property
    def places(self) -> Tensor:
        """Where each token stands in its sentence: ``(batch, length)``, below 0 in padding."""
        index = torch.arange(self.tokens.size(1), device=self.tokens.device)
        return index - self.start[:, None]

    @classmethod
    def of(cls, tokens: Tensor, pad: int, eos: int | Tensor, table: TokenTable | None) -> Side:
        """Work out the rest from tokens ``(batch, length)``; several marks are a tensor."""
        real, end = tokens != pad, torch.isin(tokens, eos)
        words = None if table is None else table.words(tokens, ~real | end)
        return cls(tokens, real, end, real.int().argmax(dim=1), real.sum(dim=1), words)


@dataclass(frozen=True)
class Batch:
    """What the measures of one batch need beside the weights.

    A text alone is source and target, the same object; the target is the decoder's input. Without
    ``table`` or ``annotated`` measures that need them are left out. ``said``: ``(batch, target)``:
    the decoder's input in the source's numbers; -1 of what is no word of it."""

    source: Side
    target: Side
    table: TokenTable | None = None
    annotated: AnnotatedBatch | None = None
    said: Tensor | None = None

    @cached_property
    def places_of_words(self) -> dict[str, Tensor] | None:
        """Where in the source the words around each step of the decoder are; None without words.

        Name of :data:`AROUND` to ``(batch, queries, keys)`` bool."""
        if self.said is None:
            return None
        source = self.source.tokens.masked_fill(~self.source.real, -2)
        return {
            name: functional.pad(self.said[:, ahead:], (0, ahead), value=-1)[:, :, None]
            == source[:, None, :]
            for name, ahead in AROUND.items()
        }

    def sides(self, attention: str) -> tuple[Side, Side]:
        """Queries and keys of an attention."""
        queries = self.source if attention == ENCODER_SELF else self.target
        return queries, self.target if attention == DECODER_SELF else self.source

    def attendable(self, attention: str) -> Tensor:
        """How many keys each query may look at, the first so many: ``(batch, queries)``."""
        queries, keys = self.sides(attention)
        if attention != DECODER_SELF:
            return keys.lengths[:, None].expand_as(queries.tokens).clamp(min=1)
        return torch.minimum((queries.places + 1).clamp(min=1), keys.lengths[:, None].clamp(min=1))
