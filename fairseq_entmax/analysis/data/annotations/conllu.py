"""Parses of the source text in CoNLL-U, https://universaldependencies.org/format.html.

What is read of a line's ten columns: ID, FORM, UPOS, HEAD, DEPREL, of FEATS whether a word asks
(``PronType=Int``) and, of MISC, named entities:
the key ``NE``, ``NER`` or ``Entity`` in any case, with ``O``, ``_`` or nothing for a word that is
in no entity, and anything else for one that is, such as ``B-PER``, ``I-PER``, ``S-PER``, ``PER``.
Values with a parenthesis are the notation of coreference, which marks more than names; they are
not read. Lines of empty nodes (``8.1``) and comments are passed over."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

COLUMNS = 10
ENTITY_KEYS = ("ne", "ner", "entity")
NO_ENTITY = ("O", "_", "")


class Word(NamedTuple):
    """A syntactic word; None where the file has ``_``. A root has the head 0; of ``nsubj:pass`` the
    relation is ``nsubj``; ``entity`` is ``O`` outside, None where the file is silent."""

    form: str
    upos: str | None
    head: int | None
    relation: str | None
    entity: str | None
    is_interrogative: bool = False


class Token(NamedTuple):
    """A word of the text: one syntactic word, or the several that a range line binds, from 0."""

    form: str
    words: range


class Sentence(NamedTuple):
    """The parse of one sentence: its syntactic words, and the words of its text."""

    words: tuple[Word, ...]
    tokens: tuple[Token, ...]


class ConlluFile:
    """A CoNLL-U file in UTF-8, read and checked on opening, and parsed by the number of a sentence."""

    def __init__(self, path: str) -> None:
        try:
            text = Path(path).read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not in UTF-8: {error}") from None
        self.path = path
        # The number of the first line of each sentence, and its lines
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
        """The sentence of a number, from 0."""
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
                        f"{len(columns)} columns, but CoNLL-U has {COLUMNS}, separated by tabs: "
                        f"{line[:60]!r}"
                    )
                bound = tokens[-1].words.stop if tokens else 0  # the last word of a range line
                identifier, form, misc = columns[0], columns[1], columns[9]
                if "." in identifier:
                    continue
                begin, is_range, last = identifier.partition("-")
                if begin != str(len(words) + 1) or (is_range and not bound <= len(words)):
                    raise ValueError(f"the column ID is {identifier!r}, not {len(words) + 1}")
                if is_range:
                    if not (last.isdecimal() and int(last) >= int(begin)):
                        raise ValueError(f"the range {identifier} has no end")
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
                raise ValueError("a sentence has no words, or not those of its last range")
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
    """The named entity of the column MISC: a label, ``O``, or None where it says nothing."""
    if "=" not in misc:
        return None
    for item in misc.split("|"):
        key, _, value = item.partition("=")
        if key.lower() in ENTITY_KEYS and "(" not in value and ")" not in value:
            return "O" if value in NO_ENTITY else value
    return None
