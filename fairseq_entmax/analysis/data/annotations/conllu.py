"""Parses of the source text in CoNLL-U, https://universaldependencies.org/format.html.

Of a line's ten columns, ID, FORM, UPOS, HEAD and DEPREL are read. FEATS says whether a word is
interrogative (``PronType=Int``). MISC gives named entities: the key is ``NE``, ``NER`` or
``Entity`` in upper or lower case; the value is ``O``, ``_`` or empty for a word outside entities,
and anything else, such as ``B-PER``, ``I-PER``, ``S-PER`` or ``PER``, for a word in one. Values
with a parenthesis are coreference notation, which marks more than names, and are ignored. So are
empty nodes (``8.1``) and comments."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

COLUMNS = 10
ENTITY_KEYS = ("ne", "ner", "entity")
NO_ENTITY = ("O", "_", "")


class Word(NamedTuple):
    """A syntactic word; a field is None if the file has ``_``. The head of a root is 0, and the
    relation ``nsubj:pass`` is ``nsubj``. ``entity`` is ``O`` outside entities, None if unknown."""

    form: str
    upos: str | None
    head: int | None
    relation: str | None
    entity: str | None
    is_interrogative: bool = False


class Token(NamedTuple):
    """A word of the text, with the indices of its syntactic words; a range line joins several."""

    form: str
    words: range


class Sentence(NamedTuple):
    """The parse of one sentence: its syntactic words, and the words of its text."""

    words: tuple[Word, ...]
    tokens: tuple[Token, ...]


class ConlluFile:
    """A CoNLL-U file in UTF-8, read and checked when opened; indexing parses a sentence."""

    def __init__(self, path: str) -> None:
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not in UTF-8: {error}") from None
        self.path = path
        # For each sentence, the number of its first line, and its lines
        self._blocks: list[tuple[int, list[str]]] = []
        is_inside = False
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                if not is_inside:
                    self._blocks.append((number, []))
                self._blocks[-1][1].append(line.rstrip("\r"))
            is_inside = bool(line.strip())
        if not self._blocks:
            raise ValueError(f"the --conllu file {path} has no sentence")
        words = [word for number in range(len(self)) for word in self[number].words]
        self.relations = tuple(sorted({w.relation for w in words if w.relation is not None}))
        self.parts_of_speech = tuple(sorted({w.upos for w in words if w.upos is not None}))
        self.has_entities = any(word.entity is not None for word in words)
        self.has_interrogatives = any(word.is_interrogative for word in words)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, number: int) -> Sentence:
        """Parse the sentence with a number, from 0."""
        first, lines = self._blocks[number]
        words: list[Word] = []
        tokens: list[Token] = []
        entity_of_range: str | None = None
        at = first - 1
        try:
            for line in lines:
                at += 1
                columns = line.split("\t")
                if line.startswith("#"):
                    continue
                if len(columns) != COLUMNS:
                    raise ValueError(
                        f"{len(columns)} columns, but CoNLL-U has {COLUMNS}, separated by tabs: {line[:60]!r}"
                    )
                bound = tokens[-1].words.stop if tokens else 0  # the last word that a token covers
                identifier, form, misc = columns[0], columns[1], columns[9]
                if "." in identifier:
                    continue
                begin, is_range, last = identifier.partition("-")
                if begin != str(len(words) + 1) or (is_range and not bound <= len(words)):
                    raise ValueError(f"the column ID is {identifier!r}, not {len(words) + 1}")
                if is_range:
                    if not (last.isdecimal() and int(last) >= int(begin)):
                        raise ValueError(f"the range {identifier} has no valid end")
                    tokens.append(Token(form, range(len(words), int(last))))
                    entity_of_range = _entity(misc)
                    continue
                word = _word(columns)
                if len(words) >= bound:
                    tokens.append(Token(form, range(len(words), len(words) + 1)))
                elif word.entity is None:
                    word = word._replace(entity=entity_of_range)
                words.append(word)
            if not words or len(words) < tokens[-1].words.stop:
                raise ValueError("a sentence has no words, or lacks words of its last range")
            for place, word in enumerate(words, start=1):
                if word.head is not None and (word.head > len(words) or word.head == place):
                    raise ValueError(
                        f"word {place} has the head {word.head} in a sentence of {len(words)} words"
                    )
        except ValueError as error:
            raise ValueError(f"{self.path}, line {at}: {error}") from error
        return Sentence(tuple(words), tuple(tokens))


def _word(columns: list[str]) -> Word:
    _, form, _, upos, _, features, head, relation, _, misc = columns
    if head != "_" and not (head.isascii() and head.isdigit()):
        raise ValueError(f"the column HEAD is {head!r}: a word's number, 0 or _ is expected")
    return Word(
        form,
        None if upos in ("_", "") else upos,
        None if head == "_" else int(head),
        None if relation in ("_", "") else relation.split(":", 1)[0],
        _entity(misc),
        "PronType=Int" in features.split("|"),
    )


def _entity(misc: str) -> str | None:
    """Return the named entity in the column MISC: a label, ``O``, or None if it gives none."""
    if "=" not in misc:
        return None
    for item in misc.split("|"):
        key, _, value = item.partition("=")
        if key.lower() in ENTITY_KEYS and "(" not in value and ")" not in value:
            return "O" if value in NO_ENTITY else value
    return None
