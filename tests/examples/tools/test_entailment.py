"""SNLI's pairs out of its archive: which are taken, their words, and what is refused."""

import pytest
from entailment import LABELS, main, words_of, write_splits

from tests.examples import entailment_miniature as miniature
from tests.examples import miniatures
from tests.examples.miniatures import lines


@pytest.fixture
def archive(tmp_path):
    miniature.write(tmp_path)
    return tmp_path / "snli_1.0.zip"


def test_the_leaves_of_a_parse_are_its_words_in_small_letters():
    parse = "( ( ( A man ) ( -LRB- ( left -RRB- ) ) ) ( is ( n't ( asleep . ) ) ) )"
    assert words_of(parse) == "a man -lrb- left -rrb- is n't asleep ."
    assert words_of("Hello") == "hello"


def test_pairs_without_a_label_are_left_out_and_the_others_stay_in_order(archive, tmp_path):
    written = write_splits(archive, tmp_path / "text")
    expected = [miniature.pair(number) for number in range(miniature.TRAIN)]
    expected = [pair for pair in expected if pair.label != "-"]
    assert written["train"] == len(expected) < miniature.TRAIN
    text = tmp_path / "text"
    assert lines(text / "train.input0") == [f"{pair.premise.lower()} ." for pair in expected]
    assert lines(text / "train.input1") == [f"{pair.hypothesis.lower()} ." for pair in expected]
    assert lines(text / "train.label") == [pair.label for pair in expected]
    assert lines(text / "train.group") == [pair.caption.removesuffix("#0") for pair in expected]
    assert set(lines(text / "test.label")) == set(LABELS)


@pytest.mark.parametrize(
    ("expected", "message"),
    [
        ("549367/9842/9824", "108 pairs with a label in train, 549367 are expected"),
        ("1/2/x", "PAIRS is '1/2/x': give 3 numbers"),
    ],
)
def test_other_numbers_of_pairs_than_expected_are_named(
    expected, message, archive, tmp_path, capsys
):
    with pytest.raises(SystemExit):
        main([str(archive), str(tmp_path / "text"), "--expect", expected])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("line", ['{"gold_label": "neutral"}', "not JSON"])
def test_a_line_of_another_form_is_named(line, tmp_path):
    names = (f"snli_1.0/snli_1.0_{split}.jsonl" for split in ("train", "dev", "test"))
    miniatures.write_zip(tmp_path / "a.zip", {name: f"{line}\n".encode() for name in names})
    with pytest.raises(ValueError, match=r"snli_1.0_train.jsonl: line 1 is none of SNLI"):
        write_splits(tmp_path / "a.zip", tmp_path / "text")
