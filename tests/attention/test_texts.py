"""Which tokens of a source are the first text, the second, and words."""

import random

import pytest
import torch

from fairseq_entmax.attention.texts import SourceSymbols
from tests.support import classification_task, padded

BOS, PAD, EOS = 0, 1, 2


def symbols(**options):
    return SourceSymbols.of(classification_task(**options))


def of_pair(first, second, initial=None, separator=None):
    """A source as the task makes it, and for each token its text: 1, 2, and 0 for padding."""
    start = [] if initial is None else [initial]
    middle = [] if separator is None else [separator]
    source = [*start, *first, EOS, *middle, *second, EOS]
    ends = len(start) + len(first) + 1
    if separator not in (None, EOS):
        ends += 1  # the separator itself ends the first text
    return source, [1] * ends + [2] * (len(source) - ends)


@pytest.mark.parametrize("separator", [None, EOS, 23])
@pytest.mark.parametrize("initial", [None, BOS, EOS, 22])
def test_texts_and_words_are_those_of_a_plain_loop(initial, separator):
    given = symbols(init_token=initial, separator_token=separator)
    draw = random.Random(1)
    pairs = [
        [[draw.randrange(4, 22) for _ in range(draw.randrange(0, 6))] for _ in range(2)]
        for _ in range(50)
    ]
    sources, places = zip(*(of_pair(*pair, initial, separator) for pair in pairs), strict=True)
    tokens = padded(sources)
    found = given.texts(tokens)
    keys = [given.keys(tokens, text) for text in found]
    special = {BOS, EOS, initial, separator}
    for row, (source, place) in enumerate(zip(sources, places, strict=True)):
        for number in (1, 2):
            is_text = [one == number for one in place]
            is_word = [t and token not in special for t, token in zip(is_text, source, strict=True)]
            rest = [False] * (tokens.size(1) - len(source))
            assert found[number - 1][row].tolist() == is_text + rest
            expected = is_word if any(is_word) else is_text
            assert keys[number - 1][row].tolist() == expected + rest


@pytest.mark.parametrize(
    ("options", "source", "first", "second"),
    [
        # An end of sentence among the words of the second text stays there
        ({}, [5, EOS, 6, EOS, 7, EOS], [1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1]),
        # One in the first text is no boundary where there is a separator
        (
            {"separator_token": 23},
            [5, EOS, 6, EOS, 23, 7, EOS],
            [1, 1, 1, 1, 1, 0, 0],
            [0, 0, 0, 0, 0, 1, 1],
        ),
        # A second text that was cut counts as far as it is there
        ({}, [5, 6, EOS, 7], [1, 1, 1, 0], [0, 0, 0, 1]),
    ],
)
def test_ends_of_sentences_that_are_no_boundaries(options, source, first, second):
    found = symbols(**options).texts(torch.tensor([source]))
    assert [text[0].int().tolist() for text in found] == [first, second]


@pytest.mark.parametrize("source", [[5, 6, EOS], [5, 6], [EOS]])
def test_a_source_without_a_second_text_is_refused(source):
    tokens = padded([[5, EOS, 6, EOS, 7], source])
    with pytest.raises(ValueError, match="source 1 of a batch has nothing behind its first sep"):
        symbols().texts(tokens)
