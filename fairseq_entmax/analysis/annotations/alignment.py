"""Which word each subword is part of, found from the letters alone.

1. The letters of a text are what is left of it in compatibility decomposition (NFKD) without
   white space, control and format characters. Two texts with the same NFKC form, which is what
   SentencePiece writes, have the same letters. The marks of subwords (``▁``, ``@@``) are no
   letters.
2. The letters of all subwords in turn must be those of all words in turn; if they are not, the
   casefolded letters must be, as models of lower-cased text have them.
3. A subword is part of the word that its first letter is in, also where it goes on into the next
   word, as a subword ``).`` does. One without letters goes with the letter that follows, so
   that the lone mark ``▁`` is part of the word that it begins.
4. ``<unk>`` stands for one or more letters, whichever. What then has a place in the same word in
   every way to match the letters is part of that word; what can be in one word or another is
   part of none.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from fairseq_entmax.analysis.tokens import MARK, SENTENCEPIECE, SUBWORD_NMT

UNKNOWN = None
NO_WORD = -1


def letters(text: str) -> str:
    """The characters by which texts are compared: rule 1."""
    decomposed = unicodedata.normalize("NFKD", text)
    if decomposed.isalnum():
        return decomposed
    return "".join(
        character
        for character in decomposed
        if not character.isspace() and unicodedata.category(character) not in ("Cc", "Cf")
    )


def subword_letters(symbol: str, kind: str) -> str:
    """The letters of a symbol of the dictionary."""
    if kind == SENTENCEPIECE:
        symbol = symbol.replace(MARK, " ")
    elif kind == SUBWORD_NMT:
        symbol = symbol.removesuffix("@@")
    return letters(symbol)


def align(subwords: Sequence[str | None], words: Sequence[str]) -> list[int]:
    """Find the word of each subword by the rules at the head of this module."""
    try:
        return _align(subwords, words)
    except DifferentTextError:
        return _align([x and _fold(x) for x in subwords], [_fold(word) for word in words])


class DifferentTextError(ValueError):
    """Subwords and words are not of the same text."""


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKD", text.casefold())


def _align(subwords: Sequence[str | None], words: Sequence[str]) -> list[int]:
    text = "".join(words)
    word_at = [number for number, word in enumerate(words) for _ in word]
    if not text and not any(subwords):
        return [NO_WORD] * len(subwords)
    segments = _segments(subwords)
    if len(segments) == 1:  # all subwords are known
        if segments[0].text != text:
            raise DifferentTextError
        return [word_at[min(start, len(text) - 1)] for start in segments[0].starts]
    earliest, latest = _places(segments, text)
    numbers: list[int] = []
    for index, segment in enumerate(segments):
        if segment.unknown:
            # Letters of the run: from the end of the segment before to the start of this one
            behind = len(segments[index - 1].text)
            first = earliest[index - 1] + behind, latest[index - 1] + behind
            numbers.append(_agreed(*first, word_at))
            for place in range(1, segment.unknown):
                remaining = segment.unknown - place
                numbers.append(_agreed(first[0] + place, latest[index] - remaining, word_at))
        for start in segment.starts:
            numbers.append(_agreed(earliest[index] + start, latest[index] + start, word_at))
    return numbers


class _Segment(NamedTuple):
    """A run of unknown subwords, and the known ones that follow it up to the next such run.

    Attributes:
        unknown: how many unknown ones there are; 0 only in the first segment.
        text: the letters of the known ones.
        starts: where in ``text`` each of them begins.
    """

    unknown: int
    text: str
    starts: list[int]


def _segments(subwords: Sequence[str | None]) -> list[_Segment]:
    """All the subwords in segments. The first has no unknown subwords, if need be no subwords."""
    segments: list[_Segment] = []
    index = 0
    while index < len(subwords) or not segments:
        first = index
        while segments and index < len(subwords) and subwords[index] is None:
            index += 1
        unknown = index - first
        known: list[str] = []
        while index < len(subwords) and (subword := subwords[index]) is not None:
            known.append(subword)
            index += 1
        starts = list(accumulate(map(len, known), initial=0))[:-1]
        segments.append(_Segment(unknown, "".join(known), starts))
    return segments


def _places(segments: list[_Segment], text: str) -> tuple[list[int], list[int]]:
    """Where in the text the known part of each segment begins, at the earliest and the latest.

    The first begins at the start of the text and the last ends at its end. Each segment between
    them is taken as far to the left as those before it allow, and as far to the right as those
    behind it allow. Every other way to match the text has it between the two.
    """
    if not text.startswith(segments[0].text):
        raise DifferentTextError
    final = len(text) - len(segments[-1].text)
    earliest = [0]
    for index, segment in enumerate(segments[1:], start=1):
        begin = earliest[-1] + len(segments[index - 1].text) + segment.unknown
        if index == len(segments) - 1:
            place = final if final >= begin and text.endswith(segment.text) else -1
        else:
            place = text.find(segment.text, begin)
        if place < 0:
            raise DifferentTextError
        earliest.append(place)
    latest = [final]
    for index in range(len(segments) - 2, 0, -1):
        end = latest[0] - segments[index + 1].unknown
        latest.insert(0, text.rfind(segments[index].text, 0, end))
    return earliest, [0, *latest]


def _agreed(earliest: int, latest: int, word_at: list[int]) -> int:
    """The word at two places of the text, if it is the same."""
    last = len(word_at) - 1
    word = word_at[min(earliest, last)]
    return word if word == word_at[min(latest, last)] else NO_WORD
