"""Annotations of the source sentences of a batch, laid out along the model's subwords."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fairseq_entmax.analysis.annotations import alignment
from fairseq_entmax.analysis.annotations.conllu import ConlluFile, Sentence
from fairseq_entmax.analysis.tokens import subword_kind

# A root has no head among the words, and punctuation's is a matter of convention
LEFT_OUT = ("root", "punct")


class Arc(NamedTuple):
    """A dependency between two words of the text, by their numbers from 0."""

    dependent: int
    head: int
    relation: int


class SentenceAnnotation(NamedTuple):
    """The annotation of one sentence.

    Attributes:
        word: the number of each subword's word, from 0; -1 for a subword of none.
        words: how many words the text has.
        arcs: its dependencies, by number of relation. Left out are roots, punctuation, and
            arcs between two syntactic words of one word of the text.
        parts_of_speech: for each word how much of it is which part of speech, by number. Of a
            word that binds several syntactic words each has the same part; a word without a
            tag has none.
        entities: the words of named entities.
    """

    word: list[int]
    words: int
    arcs: list[Arc]
    parts_of_speech: list[dict[int, float]]
    entities: set[int]


@dataclass(frozen=True)
class AnnotatedBatch:
    """The annotations of a batch, on the device of its tokens.

    Attributes:
        word: ``(batch, keys)``: the number of each source token's word; -1 at padding, at ends
            of sentences and at subwords of no word.
        words: how many words the longest sentence has.
        arc_sentence: ``(arcs,)``: the index in the batch of each dependency's sentence. Arcs
            of words that no subword is part of are left out.
        arc_dependent, arc_head: ``(arcs,)``: its two words.
        arc_relation: ``(arcs,)``: the index of its relation in ``relations``.
        parts_of_speech: ``(batch, keys, tags)`` float64: how much of a token is which part of
            speech; each row adds up to 1, or to 0 for a token without a tag.
        entities: ``(batch, keys)`` float64: 1 at the tokens of named entities.
        relations: what the relations are called.
        has_entities: whether named entities are marked.
    """

    word: Tensor
    words: int
    arc_sentence: Tensor
    arc_dependent: Tensor
    arc_head: Tensor
    arc_relation: Tensor
    parts_of_speech: Tensor
    entities: Tensor
    relations: tuple[str, ...]
    has_entities: bool


class Annotations:
    """A CoNLL-U file beside the source side of a data set.

    Args:
        path: the file, a sentence for each line of the source, in its order.
        dictionary: fairseq's dictionary of the source.
        sentences: how many sentences the data set has, checked against the file; None to leave
            that out, for a data set of some of the lines.

    Attributes:
        path: the file.
        relations: the relations whose accuracy is measured, sorted; subtypes are cut off.
        parts_of_speech: the tags that occur, sorted.
        has_entities: whether named entities are marked.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is malformed, or has another number of sentences.
    """

    def __init__(self, path: str, dictionary: Any, sentences: int | None = None) -> None:
        self._file = ConlluFile(path)
        self.path = path
        if sentences is not None and len(self._file) != sentences:
            raise ValueError(
                f"the --conllu file {path} has {len(self._file)} sentences, the data set "
                f"{sentences}: one for each line of the source is needed, in the same order"
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
        self._letters[dictionary.unk()] = alignment.UNKNOWN

    def sentence(self, number: int, tokens: Sequence[int]) -> SentenceAnnotation:
        """The annotation of one sentence.

        Args:
            number: its number in the data set, from 0.
            tokens: its tokens, without padding and end.

        Raises:
            ValueError: the file has no such sentence, or its text is another.
        """
        if number >= len(self._file):
            raise ValueError(
                f"the --conllu file {self.path} has {len(self._file)} sentences, but the data "
                f"set has a sentence {number}, from 0: one for each line of the source is needed"
            )
        parse = self._file[number]
        forms = [token.form for token in parse.tokens]
        try:
            word = alignment.align(
                [self._letters[token] for token in tokens], [*map(alignment.letters, forms)]
            )
        except alignment.DifferentTextError as error:
            symbols = [self._symbols[token] for token in tokens]
            raise ValueError(
                f"the --conllu file {self.path} does not match the source text in sentence "
                f"{number}, from 0: it has {alignment.around(forms, error.word)!r}, the data has "
                f"{alignment.around(symbols, error.subword)!r}. It must hold a parse of every "
                f"line of the text that was cut into subwords, in the same order"
            ) from None
        return self._annotate(parse, word)

    def _annotate(self, parse: Sentence, word: list[int]) -> SentenceAnnotation:
        token_of = [number for number, token in enumerate(parse.tokens) for _ in token.words]
        arcs = [
            Arc(token_of[index], token_of[parsed.head - 1], self._relation[parsed.relation])
            for index, parsed in enumerate(parse.words)
            if parsed.head
            and parsed.relation in self._relation
            and token_of[parsed.head - 1] != token_of[index]
        ]
        tags: list[dict[int, float]] = []
        entities = set()
        for number, token in enumerate(parse.tokens):
            words = [parse.words[index] for index in token.words]
            tagged = [self._tag[parsed.upos] for parsed in words if parsed.upos is not None]
            tags.append({tag: tagged.count(tag) / len(tagged) for tag in tagged})
            if any(parsed.entity not in (None, "O") for parsed in words):
                entities.add(number)
        return SentenceAnnotation(word, len(parse.tokens), arcs, tags, entities)

    def batch(self, ids: Tensor, src_tokens: Tensor) -> AnnotatedBatch:
        """The annotations of a batch.

        Args:
            ids: ``(batch,)``: the numbers of its sentences in the data set, ``sample["id"]``.
            src_tokens: ``(batch, keys)``, padded on either side.

        Raises:
            ValueError: as :meth:`sentence`.
        """
        rows = src_tokens.tolist()
        places = [
            [place for place, token in enumerate(row) if token not in self._special] for row in rows
        ]
        sentences = [
            self.sentence(number, [row[place] for place in kept])
            for number, row, kept in zip(ids.tolist(), rows, places, strict=True)
        ]
        word = torch.full(src_tokens.shape, alignment.NO_WORD)
        arcs: list[tuple[int, int, int, int]] = []
        tags: list[tuple[int, int, int, float]] = []
        entities: list[tuple[int, int]] = []
        for index, (sentence, kept) in enumerate(zip(sentences, places, strict=True)):
            word[index, kept] = torch.tensor(sentence.word, dtype=torch.long)
            known = set(sentence.word)
            arcs += [
                (index, *arc)
                for arc in sentence.arcs
                if arc.dependent in known and arc.head in known
            ]
            for place, number in zip(kept, sentence.word, strict=True):
                if number == alignment.NO_WORD:
                    continue
                tags += [(index, place, *item) for item in sentence.parts_of_speech[number].items()]
                if number in sentence.entities:
                    entities.append((index, place))
        words = max(sentence.words for sentence in sentences)
        columns = torch.tensor(arcs, dtype=torch.long).view(-1, 4).to(src_tokens.device)
        return AnnotatedBatch(
            word.to(src_tokens.device),
            words,
            columns[:, 0],
            columns[:, 1],
            columns[:, 2],
            columns[:, 3],
            self._parts_of_speech(tags, word.shape).to(src_tokens.device),
            _marked(entities, word.shape).to(src_tokens.device),
            self.relations,
            self.has_entities,
        )

    def _parts_of_speech(
        self, tags: list[tuple[int, int, int, float]], shape: torch.Size
    ) -> Tensor:
        """``(batch, keys, tags)`` from sentence, place, tag and share."""
        result = torch.zeros(*shape, len(self.parts_of_speech), dtype=torch.float64)
        if tags:
            *index, share = zip(*tags, strict=True)
            result[tuple(index)] = torch.tensor(share, dtype=torch.float64)
        return result


def _marked(places: list[tuple[int, int]], shape: torch.Size) -> Tensor:
    """``(batch, keys)``: 1 at the places given."""
    result = torch.zeros(shape, dtype=torch.float64)
    if places:
        result[tuple(zip(*places, strict=True))] = 1.0
    return result
