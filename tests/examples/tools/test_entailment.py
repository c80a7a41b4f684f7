"""Extracting SNLI's pairs from its archive: which are kept, and their words."""

import pytest
from entailment import words_of, write_splits

from tests.examples import entailment_miniature as miniature
from tests.examples.miniatures import lines


@pytest.fixture
def archive(tmp_path):
    miniature.write(tmp_path)
    return tmp_path / "snli_1.0.zip"


def test_the_words_are_the_lower_cased_leaves_of_a_parse():
    parse = "( ( ( A man ) ( -LRB- ( left -RRB- ) ) ) ( is ( n't ( asleep . ) ) ) )"
    assert words_of(parse) == "a man -lrb- left -rrb- is n't asleep ."
    assert words_of("Hello") == "hello"


def test_pairs_without_a_label_are_left_out_and_the_others_stay_in_order(archive, tmp_path):
    text = tmp_path / "text"
    text.mkdir()
    write_splits(archive, text)
    expected = [miniature.pair(number) for number in range(miniature.TRAIN)]
    expected = [pair for pair in expected if pair.label != "-"]
    assert len(expected) < miniature.TRAIN
    assert lines(text / "train.input0") == [f"{pair.premise.lower()} ." for pair in expected]
    assert lines(text / "train.input1") == [f"{pair.hypothesis.lower()} ." for pair in expected]
    assert lines(text / "train.label") == [pair.label for pair in expected]
    assert lines(text / "train.group") == [pair.caption.removesuffix("#0") for pair in expected]
    assert set(lines(text / "test.label")) == {"entailment", "neutral", "contradiction"}
