"""Parses of the source text in CoNLL-U, https://universaldependencies.org/format.html.

Read here and not by a package for three things that the analysis needs together: the byte offset
of every sentence, errors that name the line, and memory that does not grow with the file.

What is read of a line's ten columns: ID, FORM, UPOS, HEAD, DEPREL and, of MISC, named entities:
the key ``NE``, ``NER`` or ``Entity`` in any case, with ``O``, ``_`` or nothing for a word that is
in no entity, and anything else for one that is, such as ``B-PER``, ``I-PER``, ``S-PER``, ``PER``.
Values with a parenthesis are the notation of coreference, which marks more than names; they are
not read. Lines of empty nodes (``8.1``) and comments are passed over.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

COLUMNS = 10
ENTITY_KEYS = ("ne", "ner", "entity")
NO_ENTITY = ("O", "_", "")


class Word(NamedTuple):
    """A syntactic word.

    Attributes:
        form: as written.
        upos: the universal part of speech; None where the file has ``_``.
        head: the number of the word's head, from 1; 0 for a root; None where the file has ``_``.
        deprel: the relation to the head, with its subtype; None where the file has ``_``.
        entity: the named entity's label; ``O`` outside of entities; None where the file is silent.
    """

    form: str
    upos: str | None
    head: int | None
    deprel: str | None
    entity: str | None

    @property
    def relation(self) -> str | None:
        """The universal relation: ``nsubj`` for ``nsubj:pass``."""
        return None if self.deprel is None else self.deprel.split(":", 1)[0]


class Token(NamedTuple):
    """A word of the text: one syntactic word, or the several that a range line binds.

    Attributes:
        form: as the text has it.
        words: the indices of its syntactic words, from 0.
    """

    form: str
    words: range


class Sentence(NamedTuple):
    """The parse of one sentence: its syntactic words, and the words of its text."""

    words: tuple[Word, ...]
    tokens: tuple[Token, ...]


class ConlluFile:
    """A CoNLL-U file, read by the number of a sentence.

    The file is read and checked once on opening, so that a bad line is found before and not in
    the middle of an analysis; of each sentence eight bytes stay in memory.

    Attributes:
        relations: the universal relations that occur, sorted.
        parts_of_speech: the UPOS tags that occur, sorted.
        has_entities: whether named entities are marked.
    """

    def __init__(self, path: str) -> None:
        if not os.path.isfile(path):
            raise FileNotFoundError(f"there is no file {path} for --conllu")
        self.path = path
        self._offsets = array("Q")
        relations: set[str] = set()
        parts_of_speech: set[str] = set()
        self.has_entities = False
        with open(path, "rb") as file:
            for block in _blocks(file):
                sentence = _parse(block, path)
                self._offsets.append(block.offset)
                relations |= {w.relation for w in sentence.words if w.relation is not None}
                parts_of_speech |= {w.upos for w in sentence.words if w.upos is not None}
                self.has_entities |= any(w.entity is not None for w in sentence.words)
        if not self._offsets:
            raise ValueError(f"the --conllu file {path} has no sentence")
        self.relations = tuple(sorted(relations))
        self.parts_of_speech = tuple(sorted(parts_of_speech))

    def __len__(self) -> int:
        return len(self._offsets)

    def __getitem__(self, number: int) -> Sentence:
        """The sentence of a number, from 0."""
        with open(self.path, "rb") as file:
            file.seek(self._offsets[number])
            try:
                return _parse(next(_blocks(file)), self.path)
            except (ValueError, StopIteration) as error:
                raise ValueError(
                    f"the --conllu file {self.path} changed while it was being used"
                ) from error


class _Block(NamedTuple):
    """The lines of one sentence; the offset in bytes and the number, from 1, of the first."""

    offset: int
    line: int
    lines: list[bytes]


def _blocks(file: Iterator[bytes]) -> Iterator[_Block]:
    """The sentences of a file from where it stands."""
    offset, start, first = 0, 0, 1
    lines: list[bytes] = []
    # The last sentence need have no empty line behind it
    for number, line in enumerate(chain(file, [b""]), start=1):
        if line.strip():
            if not lines:
                start, first = offset, number
            lines.append(line)
        elif lines:
            yield _Block(start, first, lines)
            lines = []
        offset += len(line)


def _parse(block: _Block, path: str) -> Sentence:
    words: list[Word] = []
    tokens: list[Token] = []
    bound = 0  # the last word that a range line binds
    entity_of_range: str | None = None
    number = block.line
    try:
        for number, raw in enumerate(block.lines, start=block.line):
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            if line.startswith("#"):
                continue
            columns = _columns(line)
            identifier = columns[0]
            if "." in identifier:
                continue
            if "-" in identifier:
                token = _range(identifier, columns[1], len(words), bound)
                tokens.append(token)
                bound, entity_of_range = token.words.stop, _entity(columns[9])
                continue
            word = _word(columns, len(words) + 1)
            if len(words) >= bound:
                tokens.append(Token(word.form, range(len(words), len(words) + 1)))
            elif word.entity is None:
                word = word._replace(entity=entity_of_range)
            words.append(word)
        if not words:
            raise ValueError("a sentence has no words")
        if len(words) < bound:
            raise ValueError(f"a range goes to word {bound}, the sentence to {len(words)}")
        number = block.line
        for position, word in enumerate(words, start=1):
            if word.head is not None and (word.head > len(words) or word.head == position):
                raise ValueError(
                    f"word {position} has the head {word.head} in a sentence of {len(words)} words"
                )
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not in UTF-8") from error
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from error
    return Sentence(tuple(words), tuple(tokens))


def _columns(line: str) -> list[str]:
    columns = line.split("\t")
    if len(columns) != COLUMNS:
        raise ValueError(
            f"{len(columns)} columns, but CoNLL-U has {COLUMNS}, separated by tabs: {line[:60]!r}"
        )
    if not columns[1]:
        raise ValueError("the column FORM is empty")
    return columns


def _word(columns: list[str], expected: int) -> Word:
    identifier, form, _, upos, _, _, head, deprel, _, misc = columns
    if identifier != str(expected):
        raise ValueError(f"the column ID is {identifier!r} where {expected} is next")
    if head != "_" and not (head.isascii() and head.isdigit()):
        raise ValueError(f"the column HEAD is {head!r}: a word's number, 0 or _ is expected")
    return Word(
        form,
        None if upos in ("_", "") else upos,
        None if head == "_" else int(head),
        None if deprel in ("_", "") else deprel,
        _entity(misc),
    )


def _range(identifier: str, form: str, words: int, bound: int) -> Token:
    first, _, last = identifier.partition("-")
    if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit()):
        raise ValueError(f"the column ID is {identifier!r}: a range is such as 3-4")
    if int(first) != words + 1 or words < bound or int(last) < int(first):
        raise ValueError(f"the range {identifier} does not begin at the next word, {words + 1}")
    return Token(form, range(words, int(last)))


def _entity(misc: str) -> str | None:
    """The named entity of the column MISC: a label, ``O``, or None where it says nothing."""
    if "=" not in misc:
        return None
    for item in misc.split("|"):
        key, _, value = item.partition("=")
        if key.lower() in ENTITY_KEYS and "(" not in value and ")" not in value:
            return "O" if value in NO_ENTITY else value
    return None
