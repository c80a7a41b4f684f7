"""Which sentences are shown by default."""

from collections import Counter

import pytest

from fairseq_entmax.analysis.passes.typical import LONGEST_SHOWN, borders, typical


def of(lengths):
    """Map the numbers of sentences to their lengths."""
    return dict(enumerate(lengths))


@pytest.mark.parametrize("lengths", [range(1, 101), [7], [3, 3, 3, 9], [1, 2, 3, 4]])
def test_the_borders_are_quantiles_of_the_lengths(lengths):
    for border, share in zip(borders(of(lengths)), (0.125, 0.25, 0.5, 0.75, 0.875), strict=True):
        assert sum(length <= border for length in lengths) >= share * len(lengths)
        assert sum(length < border for length in lengths) < share * len(lengths)


def test_very_short_and_long_sentences_are_left_out_and_those_near_the_median_come_first():
    lengths = of(number // 10 + 1 for number in range(400))
    chosen = [lengths[number] for number in typical(lengths, 10)]
    # Lengths are 1 to 40, of which those from the second to the seventh eighth are typical
    assert 5 <= min(chosen) <= max(chosen) <= 35
    assert Counter((length - 1) // 10 for length in chosen) == {0: 2, 1: 3, 2: 3, 3: 2}
    distances = [abs(length - 20) for length in chosen]
    assert distances == sorted(distances)


def test_the_order_of_the_data_makes_no_difference():
    lengths = of(number * 17 % 60 + 1 for number in range(300))
    assert typical(dict(reversed(lengths.items())), 10) == typical(lengths, 10)


def test_few_sentences_are_all_shown_and_long_ones_only_if_others_do_not_suffice():
    assert sorted(typical(of([30, 5, 20, 9]), 10)) == [0, 1, 2, 3]
    long = [300 + number for number in range(100)]
    assert typical(of([*long, LONGEST_SHOWN, 20]), 2) == [100, 101]
    assert set(typical(of([*long, LONGEST_SHOWN, 20]), 3)) < set(range(100))
