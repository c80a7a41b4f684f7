"""Which sentences, and which texts of a classifier, are shown where nobody chooses."""

import random
from collections import Counter
from functools import partial

import pytest
import torch

from fairseq_entmax.analysis.data.data_types.typical import (
    LONGEST_SHOWN,
    TypicalLengths,
    TypicalSentences,
    VariedTexts,
)


def row(number, difference=0.5, length=20, text=None, *kind):
    return number, difference, length, [number] if text is None else text, *kind


def chosen(rows, number=10, size=7, chooser=TypicalSentences):
    """The sentences that are kept of rows, offered a batch at a time."""
    choice = chooser(number)
    for begin in range(0, len(rows), size):
        ids, differences, lengths, texts, *kind = zip(*rows[begin : begin + size], strict=True)
        differences = torch.tensor(differences, dtype=torch.float64)
        kind = map(torch.tensor, kind)
        choice.update(torch.tensor(ids), differences, torch.tensor(lengths), texts, *kind)
    return choice.sentences()


varied = partial(chosen, chooser=VariedTexts)


def labelled(number, difference=0.5, length=20, text=None, label=0, is_wrong=False):
    return row(number, difference, length, text, label, is_wrong)


@pytest.mark.parametrize("lengths", [range(1, 101), [7], [3, 3, 3, 9], [1, 2, 3, 4]])
def test_the_borders_are_lengths_that_so_many_sentences_reach(lengths):
    typical = TypicalLengths.of(Counter(lengths))
    for border, share in zip(typical, (0.125, 0.25, 0.5, 0.75, 0.875), strict=True):
        assert sum(length <= border for length in lengths) >= share * len(lengths)
        assert sum(length < border for length in lengths) < share * len(lengths)


def test_short_and_long_sentences_are_not_typical_and_quarters_have_their_share():
    rows = [row(number, 1 / (number + 1), number // 10 + 1) for number in range(400)]
    lengths = [rows[number][2] for number in chosen(rows)]
    # 1 to 40 tokens, of which those from the second to the seventh eighth are typical
    assert 5 <= min(lengths) <= max(lengths) <= 35
    assert Counter((length - 1) // 10 for length in lengths) == {0: 2, 1: 3, 2: 3, 3: 2}


def test_of_a_quarter_those_are_taken_whose_heads_differ_most():
    rows = [row(number, (number * 37 % 400) / 400, number // 10 + 1) for number in range(400)]
    second = sorted(rows[100:200], key=lambda one: -one[1])[:3]
    found = [number for number in chosen(rows) if 100 <= number < 200]
    assert found == [number for number, *_ in second]


@pytest.mark.parametrize("size", [1, 3, 50])
def test_batches_and_their_order_make_no_difference(size):
    rows = [row(n, (n * 37 % 100) / 100, n * 17 % 60 + 1, [n * 13 % 70]) for n in range(300)]
    # Texts that are the same are classified alike, and differ alike
    rng, same = random.Random(3), {}
    texts = [
        (n, *same.setdefault(rng.randint(0, 60), labelled(n, rng.random(), 20, [n], n % 3, n % 5 < 1))[1:])
        for n in range(150)
    ]  # fmt: skip
    first = chosen(rows), varied(texts)
    random.Random(size).shuffle(rows)
    random.Random(size).shuffle(texts)
    assert (chosen(rows, size=size), varied(texts, size=size)) == first


def test_padding_does_not_choose_between_sentences():
    rows = [row(number, 0.5 + 1e-8 * (number % 7), 20) for number in reversed(range(30))]
    assert chosen(rows, 3) == [0, 1, 2]


def test_no_text_is_shown_twice_and_of_equal_ones_the_first():
    rows = [row(number, 0.9, 20, [5, 6]) for number in range(3, 30)]
    # Its other side may have another length
    rows += [row(30, 0.95, 21, [5, 6]), *(row(number, 0.1, 20) for number in (31, 32))]
    assert chosen(rows) == [3, 31, 32]
    # Or the text another label
    assert varied([labelled(0, text=[7], label=1), labelled(1, text=[7]), labelled(2)]) == [2, 0]


def test_where_quarters_lack_sentences_those_nearest_the_median_are_shown():
    rows = [row(number, 0.5, 20) for number in range(2)]
    rows += [row(number, 0.5, 20, [99]) for number in range(2, 40)]
    rows += [row(40, 0.9, 5), row(41, 0.1, 24), row(42, 0.9, 60)]
    assert chosen(rows, 4) == [0, 1, 2, 41]


def test_of_long_documents_the_longest_that_can_be_read_are_shown_first():
    rows = [row(number, 0.5, 300 + number) for number in range(100)]
    rows += [row(100, 0.1, LONGEST_SHOWN), row(101, 0.9, 20)]
    assert chosen(rows, 3)[:2] == [100, 101]


@pytest.mark.parametrize("labels", [1, 2, 3, 4, 10])
def test_labels_have_as_many_texts_as_each_other(labels):
    rows = [labelled(number, number / 1000, label=number % labels) for number in range(200)]
    counts = Counter(number % labels for number in varied(rows))
    assert (sum(counts.values()), len(counts)) == (10, labels)
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize(("wrong", "expected"), [(0, 0), (1, 1), (3, 3), (40, 3)])
def test_some_texts_are_classified_wrongly_where_there_are_any_of_all_labels(wrong, expected):
    # Those that are wrong differ least
    rows = [labelled(n, n / 1000, label=n % 3, is_wrong=n < wrong) for n in range(100)]
    found = [number % 3 for number in varied(rows) if number < wrong]
    assert len(found) == len(set(found)) == expected


def test_of_more_labels_than_places_those_with_wrong_texts_are_shown():
    rows = [labelled(number, label=number, is_wrong=number == 29) for number in range(30)]
    found = varied(rows)
    assert len(found) == 10
    assert 29 in found


def test_texts_of_typical_length_whose_heads_differ_most_come_first():
    rows = [labelled(number, number / 100, 12) for number in range(40)]
    others = [labelled(40, 0.99, 41), labelled(41, 0.98, 7)]
    assert varied([*others, *rows], 4) == [39, 38, 37, 36]
    assert varied([*others, *rows[:20]], 22)[-2:] == [41, 40]
