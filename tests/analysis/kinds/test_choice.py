"""Which texts of a classifier are shown where nobody chooses."""

import random
from collections import Counter

import pytest
import torch

from fairseq_entmax.analysis.kinds.choice import VariedTexts

LENGTH = 12  # within what is short enough to be read


def text(number):
    """A text that no other number has."""
    return [4 + number, *[4] * (LENGTH - 1)]


def row(number, difference=0.5, tokens=None, label=0, is_wrong=False):
    return number, difference, text(number) if tokens is None else tokens, label, is_wrong


def chosen(rows, number=10, size=7):
    """The texts that are kept of rows, offered a batch at a time."""
    choice = VariedTexts(number)
    for begin in range(0, len(rows), size):
        ids, differences, texts, labels, wrong = zip(*rows[begin : begin + size], strict=True)
        choice.update(
            torch.tensor(ids),
            torch.tensor(differences, dtype=torch.float64),
            texts,
            torch.tensor(labels),
            torch.tensor(wrong),
        )
    return choice.sentences()


def test_of_texts_that_are_the_same_the_first_alone_is_shown():
    rows = [row(number, 0.9 + 1e-9 * number, text(0)) for number in range(3, 30)]
    rows += [row(number, 0.1) for number in range(30, 34)]
    assert chosen(rows) == [3, 30, 31, 32, 33]


def test_a_text_with_two_labels_is_shown_once():
    rows = [row(0, label=1, tokens=text(7)), row(1, label=0, tokens=text(7)), row(2)]
    assert chosen(rows) == [2, 0]


@pytest.mark.parametrize("labels", [1, 2, 3, 4, 10])
def test_labels_have_as_many_texts_as_each_other(labels):
    rows = [row(number, number / 1000, label=number % labels) for number in range(200)]
    counts = Counter(number % labels for number in chosen(rows))
    assert sum(counts.values()) == 10
    assert len(counts) == labels
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize(("wrong", "expected"), [(0, 0), (1, 1), (3, 3), (40, 3)])
def test_some_texts_are_classified_wrongly_where_there_are_any(wrong, expected):
    # Those that are wrong differ least
    rows = [row(n, n / 1000, label=n % 2, is_wrong=n < wrong) for n in range(100)]
    assert sum(number < wrong for number in chosen(rows)) == expected


def test_texts_that_are_wrong_are_of_all_labels_too():
    rows = [row(n, n / 1000, label=n % 3, is_wrong=n < 30) for n in range(90)]
    assert sorted(number % 3 for number in chosen(rows) if number < 30) == [0, 1, 2]


def test_of_more_labels_than_places_those_with_wrong_texts_are_shown():
    rows = [row(number, label=number, is_wrong=number == 29) for number in range(30)]
    found = chosen(rows)
    assert len(found) == 10
    assert 29 in found


def test_texts_of_typical_length_whose_heads_differ_most_come_first():
    rows = [row(number, number / 100) for number in range(40)]
    long = [row(40, 0.99, [4] * 41), row(41, 0.98, [4] * 7)]
    assert chosen([*long, *rows], 4) == [39, 38, 37, 36]
    assert chosen([*long, *rows[:20]], 22)[-2:] == [41, 40]


def test_the_choice_is_the_same_in_any_order_and_any_batches():
    rng = random.Random(3)
    rows = [
        row(n, rng.random(), text(rng.randint(0, 60)), n % 3, rng.random() < 0.2)
        for n in range(150)
    ]
    # Texts that are the same are classified alike, and differ alike
    first = {}
    rows = [(number, *first.setdefault(tuple(one[1]), one)) for number, *one in rows]
    expected = chosen(rows)
    for size in (1, 40):
        rng.shuffle(rows)
        assert chosen(rows, size=size) == expected
