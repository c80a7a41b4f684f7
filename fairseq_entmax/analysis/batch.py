"""The sentences of a batch, as the measures of attention need them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fairseq_entmax.analysis.annotations.annotated import AnnotatedBatch
from fairseq_entmax.analysis.tokens import TokenTable
from fairseq_entmax.attentions import DECODER_SELF, ENCODER_SELF


@dataclass(frozen=True)
class Side:
    """The tokens of one language in a batch, as attention has them.

    Attributes:
        tokens: ``(batch, length)``.
        real: ``(batch, length)`` bool: not padding.
        end: ``(batch, length)`` bool: marks of the end of a sentence.
        start: ``(batch,)``: the padding on the left.
        lengths: ``(batch,)``: how many tokens are real.
        words: ``(batch, length)``, of :meth:`TokenTable.words`; None where nothing is known of
            the tokens.
    """

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
    def of(cls, tokens: Tensor, pad: int, eos: int, table: TokenTable | None) -> Side:
        """Work out the rest from tokens ``(batch, length)``."""
        real, end = tokens != pad, tokens == eos
        words = None if table is None else table.words(tokens, ~real | end)
        return cls(tokens, real, end, real.int().argmax(dim=1), real.sum(dim=1), words)


@dataclass(frozen=True)
class Batch:
    """What the measures of one batch need beside the weights.

    Attributes:
        source: the source sentences.
        target: the decoder's input, which begins with the mark of the end of a sentence.
        table: facts on the source's tokens; None leaves out the measures that need them.
        annotated: the source's annotations; None likewise.
    """

    source: Side
    target: Side
    table: TokenTable | None = None
    annotated: AnnotatedBatch | None = None

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
