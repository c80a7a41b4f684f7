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
   part of none."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from fairseq_entmax.analysis.data.tokens import MARK, SENTENCEPIECE, SUBWORD_NMT

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
    if not text and not any(subwords):
        return [NO_WORD] * len(subwords)
    word_at = [number for number, word in enumerate(words) for _ in word]
    # Where each subword can begin, by those before it; then without what those behind it rule out
    places = [{0}]
    for subword in subwords:
        if subword is None:
            behind = set(range(min(places[-1], default=len(text)) + 1, len(text) + 1))
        else:
            known = (place for place in places[-1] if text.startswith(subword, place))
            behind = {place + len(subword) for place in known}
        places.append(behind)
    places[-1] &= {len(text)}
    for number in range(len(subwords) - 1, -1, -1):
        subword, behind = subwords[number], places[number + 1]
        if subword is None:
            last = max(behind, default=0)
            places[number] = {place for place in places[number] if place < last}
        else:
            known = (place - len(subword) for place in behind)
            places[number] &= {place for place in known if text.startswith(subword, place)}
    if not places[-1]:
        raise DifferentTextError
    last = len(word_at) - 1
    found = [{word_at[min(n, last)] for n in each if word_at} for each in places[:-1]]
    return [numbers.pop() if len(numbers) == 1 else NO_WORD for numbers in found]
