"""Which sentences are shown by default."""

from fairseq_entmax.analysis.analyze import LONGEST_SHOWN, typical


def of(lengths):
    """Map the numbers of sentences to their lengths."""
    return dict(enumerate(lengths))


def test_all_lengths_are_shown_and_those_near_the_median_come_first_in_any_order_of_the_data():
    lengths = of(number % 40 + 1 for number in range(400))
    chosen = typical(lengths)
    assert sorted(lengths[one] for one in chosen) == [3 + 4 * n for n in range(10)]
    distances = [abs(lengths[one] - 21) for one in chosen]
    assert distances == sorted(distances)
    assert typical(dict(reversed(lengths.items()))) == chosen


def test_few_sentences_are_all_shown_and_long_ones_only_if_others_do_not_suffice():
    assert sorted(typical(of([30, 5, 20, 9]))) == [0, 1, 2, 3]
    long = [300 + number for number in range(100)]
    assert set(typical(of([*long, *[LONGEST_SHOWN] * 10]))) == set(range(100, 110))
    assert set(typical(of([*long, 20]))) < set(range(100))
