"""Aligning subwords with the words that they are part of."""

import random
from collections.abc import Iterator, Sequence

import pytest

from fairseq_entmax.analysis.data.annotations.alignment import (
    NO_WORD,
    DifferentTextError,
    align,
    letters,
    subword_letters,
)
from fairseq_entmax.analysis.data.tokens import SENTENCEPIECE, SUBWORD_NMT


@pytest.mark.parametrize(
    ("subwords", "words", "expected"),
    [
        ("Y di@@ jo Dios :", "Y dijo Dios :", [0, 1, 1, 2, 3]),
        ("▁Y ▁di jo ▁Dios :", "Y dijo Dios :", [0, 1, 1, 2, 3]),
        ("▁( a ). ▁b", "( a ) . b", [0, 1, 2, 4]),  # over two words: the first letter decides
        ("▁a ▁ ñ", "a ñ", [0, 1, 1]),  # a mark without letters
        ("▁y ▁di jo ▁strasse ▁a", "Y DIJO Straße A", [0, 1, 1, 2, 3]),  # lower-cased
    ],
)
def test_pieces_are_aligned_with_the_words_they_spell(subwords, words, expected) -> None:
    kind = SUBWORD_NMT if "@@" in subwords else SENTENCEPIECE
    pieces = [subword_letters(symbol, kind) for symbol in subwords.split()]
    assert align(pieces, [letters(word) for word in words.split()]) == expected


@pytest.mark.parametrize(
    ("subword", "word"),
    [
        ("fi", "\ufb01"),  # a ligature
        ("1\u20442", "\u00bd"),
        ("e\u0301", "\u00e9"),
        ("\uff21", "A"),
        ("ab", "a\u200bb\x07"),
    ],
)
def test_texts_with_the_same_nfkc_form_match(subword: str, word: str) -> None:
    assert align([letters(subword)], [letters(word)]) == [0]


def ways(pieces: Sequence[str | None], text: str, start: int = 0) -> Iterator[list[int]]:
    """The start of each piece, for every way to spell a text with the pieces."""
    if not pieces:
        if start == len(text):
            yield []
        return
    first = pieces[0]
    lengths = range(1, len(text) - start + 1) if first is None else [len(first)]
    for length in lengths:
        if first is None or text.startswith(first, start):
            for rest in ways(pieces[1:], text, start + length):
                yield [start, *rest]


def random_pieces(generator: random.Random) -> tuple[list[str], list[str | None]]:
    """Four words of one to three letters, cut anywhere; some pieces are unknown or empty."""
    words = ["".join(generator.choices("ab", k=generator.randint(1, 3))) for _ in range(4)]
    text = "".join(words)
    cuts = sorted(generator.sample(range(1, len(text)), min(len(text) - 1, 4)))
    parts = [text[i:j] for i, j in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    pieces = [None if generator.random() < 0.4 else part for part in parts]
    if generator.random() < 0.2:
        pieces[0] = "c"  # a text that nothing matches
    if generator.random() < 0.3:
        pieces.insert(generator.randrange(len(pieces)), "")
    return words, pieces


@pytest.mark.parametrize("seed", range(30))
def test_alignment_is_what_all_ways_to_match_the_text_agree_on(seed: int) -> None:
    generator = random.Random(seed)
    for _ in range(10):
        words, pieces = random_pieces(generator)
        text = "".join(words)
        word_at = [number for number, word in enumerate(words) for _ in word]
        found = [[word_at[min(at, len(text) - 1)] for at in way] for way in ways(pieces, text)]
        if not found:
            with pytest.raises(DifferentTextError):
                align(pieces, words)
            continue
        expected = [
            places.pop() if len(places := set(column)) == 1 else NO_WORD
            for column in zip(*found, strict=True)
        ]
        assert align(pieces, words) == expected, (pieces, words)
