"""Which sentences are shown by default."""

import random
from collections import Counter

import pytest
import torch

from fairseq_entmax.analysis.data.data_types.typical import (
    LONGEST_SHOWN,
    TypicalLengths,
    TypicalSentences,
)


def row(number, difference=0.5, length=20, text=None):
    return number, difference, length, [number] if text is None else text


def chosen(rows, number=10, size=7):
    """The sentences kept from rows that are offered batch by batch."""
    choice = TypicalSentences(number)
    for begin in range(0, len(rows), size):
        ids, differences, lengths, texts = zip(*rows[begin : begin + size], strict=True)
        differences = torch.tensor(differences, dtype=torch.float64)
        choice.update(torch.tensor(ids), differences, torch.tensor(lengths), texts)
    return choice.sentences()


@pytest.mark.parametrize("lengths", [range(1, 101), [7], [3, 3, 3, 9], [1, 2, 3, 4]])
def test_the_borders_are_quantiles_of_the_lengths(lengths):
    typical = TypicalLengths.of(Counter(lengths))
    for border, share in zip(typical, (0.125, 0.25, 0.5, 0.75, 0.875), strict=True):
        assert sum(length <= border for length in lengths) >= share * len(lengths)
        assert sum(length < border for length in lengths) < share * len(lengths)


def test_very_short_and_long_sentences_are_skipped_and_quarters_are_balanced():
    rows = [row(number, 1 / (number + 1), number // 10 + 1) for number in range(400)]
    lengths = [rows[number][2] for number in chosen(rows)]
    # Lengths are 1 to 40, of which those from the second to the seventh eighth are typical
    assert 5 <= min(lengths) <= max(lengths) <= 35
    assert Counter((length - 1) // 10 for length in lengths) == {0: 2, 1: 3, 2: 3, 3: 2}


def test_each_quarter_shows_sentences_whose_heads_differ_most():
    rows = [row(number, (number * 37 % 400) / 400, number // 10 + 1) for number in range(400)]
    second = sorted(rows[100:200], key=lambda one: -one[1])[:3]
    found = [number for number in chosen(rows) if 100 <= number < 200]
    assert found == [number for number, *_ in second]


@pytest.mark.parametrize("size", [1, 3, 50])
def test_batches_and_their_order_make_no_difference(size):
    rows = [row(n, (n * 37 % 100) / 100, n * 17 % 60 + 1, [n * 13 % 70]) for n in range(300)]
    first = chosen(rows)
    random.Random(size).shuffle(rows)
    assert chosen(rows, size=size) == first


def test_differences_from_padding_do_not_decide_between_sentences():
    rows = [row(number, 0.5 + 1e-8 * (number % 7), 20) for number in reversed(range(30))]
    assert chosen(rows, 3) == [0, 1, 2]


def test_equal_texts_are_shown_once_by_the_first():
    rows = [row(number, 0.9, 20, [5, 6]) for number in range(3, 30)]
    # The other side may differ in length
    rows += [row(30, 0.95, 21, [5, 6]), *(row(number, 0.1, 20) for number in (31, 32))]
    assert chosen(rows) == [3, 31, 32]


def test_quarters_without_sentences_are_filled_near_the_median():
    rows = [row(number, 0.5, 20) for number in range(2)]
    rows += [row(number, 0.5, 20, [99]) for number in range(2, 40)]
    rows += [row(40, 0.9, 5), row(41, 0.1, 24), row(42, 0.9, 60)]
    assert chosen(rows, 4) == [0, 1, 2, 41]


def test_for_long_documents_the_longest_readable_ones_come_first():
    rows = [row(number, 0.5, 300 + number) for number in range(100)]
    rows += [row(100, 0.1, LONGEST_SHOWN), row(101, 0.9, 20)]
    assert chosen(rows, 3)[:2] == [100, 101]
