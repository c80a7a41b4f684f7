"""Find the word that each subword is part of, from the letters alone.

1. The letters of a text are its compatibility decomposition (NFKD) without white space, control
   and format characters. Two texts with the same NFKC form, which SentencePiece writes, have the
   same letters. The marks of subwords (``▁``, ``@@``) are not letters.
2. The joined letters of all subwords must equal the joined letters of all words. If they do not,
   the casefolded letters must, because some models read lower-cased text.
3. A subword is part of the word that contains its first letter, even if it continues into the
   next word, as ``).`` does. A subword without letters belongs to the letter that follows, so a
   lone mark ``▁`` is part of the word that it begins.
4. ``<unk>`` stands for one or more letters of any kind. A subword that falls into the same word in
   every possible match is part of that word; if it could fall into several, it is part of none."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from fairseq_entmax.analysis.data.tokens import MARK, SENTENCEPIECE, SUBWORD_NMT

UNKNOWN = None
NO_WORD = -1


def letters(text: str) -> str:
    """Return the characters by which texts are compared (rule 1)."""
    decomposed = unicodedata.normalize("NFKD", text)
    if decomposed.isalnum():
        return decomposed
    return "".join(
        character
        for character in decomposed
        if not character.isspace() and unicodedata.category(character) not in ("Cc", "Cf")
    )


def subword_letters(symbol: str, kind: str) -> str:
    """Return the letters of a dictionary's symbol."""
    if kind == SENTENCEPIECE:
        symbol = symbol.replace(MARK, " ")
    elif kind == SUBWORD_NMT:
        symbol = symbol.removesuffix("@@")
    return letters(symbol)


def align(subwords: Sequence[str | None], words: Sequence[str]) -> list[int]:
    """Return the number of each subword's word, or -1, by the rules at the head of this module."""
    try:
        return _align(subwords, words)
    except DifferentTextError:
        return _align([x and x.casefold() for x in subwords], [word.casefold() for word in words])


class DifferentTextError(ValueError):
    """Subwords and words are not of the same text."""


def _align(subwords: Sequence[str | None], words: Sequence[str]) -> list[int]:
    text = "".join(words)
    word_at = [number for number, word in enumerate(words) for _ in word]
    # Where each subword can begin, given those before it; then given those after it as well
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
