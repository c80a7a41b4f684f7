"""The sentences of a batch, in the form that the measures need."""

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

# Distance from a query's own token, which is the word written last, to the words around its step
AROUND = {"last": 0, "now": 1, "next": 2}


@dataclass(frozen=True)
class Side:
    """The tokens ``(batch, length)`` of one side of a batch, as attention sees them.

    ``real``: not padding. ``end``: ends of sentences, and other symbols that are not words.
    ``start``: padding on the left. ``words``: of :meth:`TokenTable.words`."""

    tokens: Tensor
    real: Tensor
    end: Tensor
    start: Tensor
    lengths: Tensor
    words: Tensor

    @property
    def places(self) -> Tensor:
        """Position of each token in its sentence: ``(batch, length)``, negative in left padding."""
        index = torch.arange(self.tokens.size(1), device=self.tokens.device)
        return index - self.start[:, None]

    @classmethod
    def of(cls, tokens: Tensor, pad: int, eos: int | Tensor, table: TokenTable) -> Side:
        """Make a side from tokens ``(batch, length)``; ``eos`` may be a tensor of symbols."""
        real, end = tokens != pad, torch.isin(tokens, eos)
        words = table.words(tokens, ~real | end)
        return cls(tokens, real, end, real.int().argmax(dim=1), real.sum(dim=1), words)


@dataclass(frozen=True)
class Batch:
    """What measures need to know about a batch apart from the weights.

    ``target`` is the decoder's input. A text alone is both source and target, as one object.
    ``table``: of the source. Measures that need ``annotated`` are left out without it.
    ``target_in_source``: ``(batch, target)``, the target's tokens in the source's dictionary; -1 if
    special or absent."""

    source: Side
    target: Side
    table: TokenTable
    annotated: AnnotatedBatch | None = None
    target_in_source: Tensor | None = None

    @cached_property
    def places_of_words(self) -> dict[str, Tensor] | None:
        """Where the words around each decoder step are in the source; None if words are unknown.

        Maps each name in :data:`AROUND` to ``(batch, queries, keys)`` bool."""
        if self.target_in_source is None:
            return None
        source = self.source.tokens.masked_fill(~self.source.real, -2)
        length = self.target_in_source.size(1)
        words = functional.pad(self.target_in_source, (0, max(AROUND.values())), value=-1)
        return {
            name: words[:, ahead : ahead + length, None] == source[:, None, :]
            for name, ahead in AROUND.items()
        }

    @cached_property
    def interrogative(self) -> Tensor | None:
        """Whether each source token is part of an interrogative word, ``(batch, keys)`` bool.
        Parses decide if they mark any such word, else a list of words; None without one."""
        if self.annotated is not None and self.annotated.interrogative is not None:
            return self.annotated.interrogative
        return self.table.interrogative(self.source.tokens, self.source.words)

    def sides(self, attention: str) -> tuple[Side, Side]:
        """Return the sides that the queries and the keys of an attention are on."""
        queries = self.source if attention == ENCODER_SELF else self.target
        return queries, self.target if attention == DECODER_SELF else self.source

    def attendable(self, attention: str) -> Tensor:
        """How many keys, counted from the first, each query may attend to: ``(batch, queries)``."""
        queries, keys = self.sides(attention)
        if attention != DECODER_SELF:
            return keys.lengths[:, None].expand_as(queries.tokens).clamp(min=1)
        return torch.minimum((queries.places + 1).clamp(min=1), keys.lengths[:, None].clamp(min=1))


class Tables:
    """Token tables of the two sides of pairs of texts; they turn samples into batches."""

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
        return self.source.rank.device

    def batch(self, sample: Any) -> Batch:
        """Convert a batch of fairseq's data loader."""
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
        """Return the same source sentences with another decoder input, ``(batch, target)``."""
        target = Side.of(previous, self.pad, self.eos, self.target)
        return replace(batch, target=target, target_in_source=self._in_source[previous])


class TextTables(Tables):
    """The token table of a text alone, which is both source and target of its batches."""

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
    """Return each target token's index in the source's dictionary; -1 if special or not in it."""
    source, target = task.source_dictionary, task.target_dictionary
    each = ((number, source[number]) for number in map(source.index, target.symbols))
    pairs = zip(each, target.symbols, strict=True)
    return [n if n >= source.nspecial and word == symbol else -1 for (n, word), symbol in pairs]
