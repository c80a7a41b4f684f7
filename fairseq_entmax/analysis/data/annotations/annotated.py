"""Annotations of a batch's source sentences, aligned with the model's subwords."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis.data.annotations import alignment
from fairseq_entmax.analysis.data.annotations.conllu import ConlluFile, Sentence
from fairseq_entmax.analysis.data.tokens import subword_kind
from fairseq_entmax.models.copy_transformer import markers_of

# A root has no head among the words; the head of punctuation is a matter of convention
LEFT_OUT = ("root", "punct")


@dataclass(frozen=True)
class AnnotatedBatch:
    """The annotations of a batch, on the device of its tokens.

    ``word``: ``(batch, keys)``, the number of each token's word, -1 for none. ``words``: how many
    words the longest sentence has. ``arc_…``: ``(arcs,)``, each dependency's sentence, two words,
    and index in ``relations``. ``parts_of_speech``: ``(batch, keys, tags)`` float64; rows sum to 1,
    or to 0 without a tag. ``entities``: ``(batch, keys)`` float64, 1 or 0. ``interrogative``:
    ``(batch, keys)`` bool; None if the file marks no interrogative word."""

    word: Tensor
    words: int
    arc_sentence: Tensor
    arc_dependent: Tensor
    arc_head: Tensor
    arc_relation: Tensor
    parts_of_speech: Tensor
    entities: Tensor
    interrogative: Tensor | None
    relations: tuple[str, ...]
    has_entities: bool
    tags: tuple[str, ...]


class Annotations:
    """A CoNLL-U file with parses of a data set's source side.

    Args:
        path: the file, with one sentence for each line of the source, in the same order.
        dictionary: fairseq's source dictionary.
        sentences: how many sentences the data set has; None if it holds only some of the lines.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is malformed, or its number of sentences differs.
    """

    def __init__(self, path: str, dictionary: Any, sentences: int | None = None) -> None:
        self._file = ConlluFile(path)
        self.path = path
        if sentences is not None and len(self._file) != sentences:
            raise ValueError(
                f"the --conllu file {path} has {len(self._file)} sentences, but the data set has "
                f"{sentences}: it needs one for each line of the source, in the same order"
            )
        self.relations = tuple(name for name in self._file.relations if name not in LEFT_OUT)
        self.parts_of_speech = self._file.parts_of_speech
        self.has_entities = self._file.has_entities
        self._relation = {name: number for number, name in enumerate(self.relations)}
        self._tag = {name: number for number, name in enumerate(self.parts_of_speech)}
        self._symbols: list[str] = dictionary.symbols
        self._special = (dictionary.pad(), dictionary.eos())
        kind = subword_kind(dictionary)
        self._letters: list[str | None] = [
            alignment.subword_letters(symbol, kind) for symbol in self._symbols
        ]
        for unknown in (
            dictionary.unk(),
            *range(len(dictionary) - markers_of(dictionary), len(dictionary)),
        ):
            self._letters[unknown] = alignment.UNKNOWN

    def batch(self, ids: Tensor, src_tokens: Tensor) -> AnnotatedBatch:
        """Return the annotations of sentences ``ids`` ``(batch,)``, for tokens ``(batch, keys)``.

        Roots, punctuation, and arcs between syntactic words of the same word of the text are left
        out. If a word of the text has several tagged syntactic words, their tags count equally."""
        word = torch.full(src_tokens.shape, alignment.NO_WORD)
        arcs: list[tuple[int, int, int, int]] = []
        tags: list[tuple[int, int, int, float]] = []
        entities: list[tuple[int, int, float]] = []
        asking: list[tuple[int, int, float]] = []
        words = 0
        for index, (number, row) in enumerate(zip(ids.tolist(), src_tokens.tolist(), strict=True)):
            places = [place for place, token in enumerate(row) if token not in self._special]
            parse = self._parse(number)
            numbers = self._align(number, parse, [row[place] for place in places])
            word[index, places] = torch.tensor(numbers, dtype=torch.long)
            known = set(numbers)
            arcs += [(index, *arc) for arc in self._arcs(parse) if known.issuperset(arc[:2])]
            words = max(words, len(parse.tokens))
            parts = [[parse.words[n] for n in token.words] for token in parse.tokens]
            parts.append([])  # for tokens of no word, -1
            for place, place_in_text in zip(places, numbers, strict=True):
                bound = parts[place_in_text]
                tagged = [self._tag[part.upos] for part in bound if part.upos is not None]
                tags += [(index, place, tag, tagged.count(tag) / len(tagged)) for tag in tagged]
                if any(part.entity not in (None, "O") for part in bound):
                    entities.append((index, place, 1.0))
                if any(part.is_interrogative for part in bound):
                    asking.append((index, place, 1.0))
        device, asks = src_tokens.device, _filled(word.shape, asking)
        columns = torch.tensor(arcs, dtype=torch.long).view(-1, 4).to(device)
        sentence, dependent, head, relation = columns.unbind(dim=1)
        return AnnotatedBatch(
            word.to(device),
            words,
            *(sentence, dependent, head, relation),
            _filled((*word.shape, len(self.parts_of_speech)), tags).to(device),
            _filled(word.shape, entities).to(device),
            asks.bool().to(device) if self._file.has_interrogatives else None,
            self.relations,
            self.has_entities,
            self.parts_of_speech,
        )

    def _parse(self, number: int) -> Sentence:
        if number >= len(self._file):
            raise ValueError(
                f"the --conllu file {self.path} has no sentence {number}, counted from 0, but the "
                f"data set has: the file needs one for each line of the source"
            )
        return self._file[number]

    def _align(self, number: int, parse: Sentence, tokens: Sequence[int]) -> list[int]:
        """Return the number of each token's word, from 0; -1 for a token of no word."""
        forms = [token.form for token in parse.tokens]
        try:
            return alignment.align(
                [self._letters[token] for token in tokens], [*map(alignment.letters, forms)]
            )
        except alignment.DifferentTextError:
            symbols = " ".join(self._symbols[token] for token in tokens)
            raise ValueError(
                f"the --conllu file {self.path} does not match the source text in sentence "
                f"{number}, counted from 0: it has {' '.join(forms)[:99]!r}, the data has "
                f"{symbols[:99]!r}. It must have a parse of each line of the text that was split "
                f"into subwords, in the same order"
            ) from None

    def _arcs(self, parse: Sentence) -> Iterator[tuple[int, int, int]]:
        """Yield each arc's dependent and head, as words of the text, and its relation's number."""
        token_of = [number for number, token in enumerate(parse.tokens) for _ in token.words]
        for dependent, word in zip(token_of, parse.words, strict=True):
            if word.head and word.relation in self._relation:
                head = token_of[word.head - 1]
                if head != dependent:
                    yield dependent, head, self._relation[word.relation]


def _filled(shape: Sequence[int], items: Sequence[tuple[float, ...]]) -> Tensor:
    """Return zeros except for some items, each of which is an index followed by a value."""
    result = torch.zeros(*shape, dtype=torch.float64)
    if items:
        *index, values = zip(*items, strict=True)
        result[tuple(index)] = torch.tensor(values, dtype=torch.float64)
    return result
