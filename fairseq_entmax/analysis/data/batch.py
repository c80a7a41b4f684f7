"""The sentences of a batch, as the measures of attention need them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from fairseq_entmax.analysis.data import tokens
from fairseq_entmax.analysis.data.annotations.annotated import AnnotatedBatch, Annotations
from fairseq_entmax.analysis.data.tokens import TokenTable
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
    ``table`` or ``annotated`` measures that need them are left out. ``target_in_source``:
    ``(batch, target)``, the target in the source's numbers; -1 of what is no word of it."""

    source: Side
    target: Side
    table: TokenTable | None = None
    annotated: AnnotatedBatch | None = None
    target_in_source: Tensor | None = None

    @cached_property
    def places_of_words(self) -> dict[str, Tensor] | None:
        """Where in the source the words around each step of the decoder are; None without words.

        Name of :data:`AROUND` to ``(batch, queries, keys)`` bool."""
        if self.target_in_source is None:
            return None
        source = self.source.tokens.masked_fill(~self.source.real, -2)
        return {
            name: functional.pad(self.target_in_source[:, ahead:], (0, ahead), value=-1)[:, :, None]
            == source[:, None, :]
            for name, ahead in AROUND.items()
        }

    @cached_property
    def interrogative(self) -> Tensor | None:
        """Which tokens of the source are of words that ask, ``(batch, keys)`` bool: by the parses,
        where they say so of any word, else by a list of words; None without either."""
        if self.annotated is not None and self.annotated.interrogative is not None:
            return self.annotated.interrogative
        source = self.source
        if self.table is None or source.words is None:
            return None
        return self.table.interrogative(source.tokens, source.words)

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


class Tables:
    """Facts on the tokens of both languages of pairs of texts."""

    def __init__(
        self, task: Any, device: torch.device, annotations: Annotations | None = None
    ) -> None:
        self.pad: int = task.source_dictionary.pad()
        self.eos: int = task.source_dictionary.eos()
        self.source = tokens.TokenTable.of(task.source_dictionary, task.cfg.source_lang).to(device)
        self.target = tokens.TokenTable.of(task.target_dictionary, task.cfg.target_lang).to(device)
        self.annotations = annotations
        self._in_source = torch.tensor(_in_source(task)).to(device)

    @property
    def device(self) -> torch.device:
        """Where batches are."""
        return self.source.rank.device

    def batch(self, sample: Any) -> Batch:
        """The sentences of a batch of fairseq's data loader."""
        tokens, previous = (sample["net_input"][n] for n in ("src_tokens", "prev_output_tokens"))
        source = Side.of(tokens, self.pad, self.eos, self.source)
        target = Side.of(previous, self.pad, self.eos, self.target)
        annotated = self._annotated(sample)
        return Batch(source, target, self.source, annotated, self._in_source[previous])

    def _annotated(self, sample: Any) -> AnnotatedBatch | None:
        if self.annotations is None:
            return None
        return self.annotations.batch(sample["id"], sample["net_input"]["src_tokens"])

    def with_target(self, batch: Batch, previous: Tensor) -> Batch:
        """The same source sentences with another input of the decoder, ``(batch, target)``."""
        target = Side.of(previous, self.pad, self.eos, self.target)
        return replace(batch, target=target, target_in_source=self._in_source[previous])


class TextTables(Tables):
    """Facts on the tokens of a text alone: it is source and target of its batches."""

    def __init__(
        self,
        dictionary: Any,
        device: torch.device,
        marks: Collection[int],
        annotations: Annotations | None = None,
    ) -> None:
        self.pad = dictionary.pad()
        self.eos = dictionary.eos()
        self.source = self.target = tokens.TokenTable.of(dictionary).to(device)
        self.annotations = annotations
        self._marks = torch.tensor(sorted({*marks, self.eos}), device=device)

    def batch(self, sample: Any) -> Batch:
        side = Side.of(sample["net_input"]["src_tokens"], self.pad, self._marks, self.source)
        return Batch(side, side, self.source, self._annotated(sample))


def _in_source(task: Any) -> list[int]:
    """The number of each target token in the source's dictionary; -1 for special symbols."""
    source, target = task.source_dictionary, task.target_dictionary
    each = ((number, source[number]) for number in map(source.index, target.symbols))
    pairs = zip(each, target.symbols, strict=True)
    return [n if n >= source.nspecial and word == symbol else -1 for (n, word), symbol in pairs]
