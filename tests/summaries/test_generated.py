"""fairseq-generate's output is read by sentence number, and nothing else is taken for it."""

import random

import pytest

from fairseq_entmax.summaries.generated import parse_line, read_generated
from tests.summaries.texts import LOG, printed

THREE = {
    0: ("a b", "x", "first", "another"),
    1: ("c", "y", "second"),
    2: ("d e f", "z", ""),
}


def read(tmp_path, text):
    path = tmp_path / "out"
    path.write_text(text, encoding="utf-8")
    return read_generated(str(path))


@pytest.mark.parametrize("seed", range(3))
def test_sentences_are_in_the_order_of_their_numbers_whatever_the_order_of_the_lines(
    tmp_path, seed
):
    sentences = {n: (f"s{n}", f"t{n}", f"h{n}") for n in range(30)}
    order = random.Random(seed).sample(range(30), 30)
    generated = read(tmp_path, printed(sentences, order))
    assert generated.in_order(30, "--source", "f") == [f"h{n}" for n in range(30)]
    assert generated.sources == {n: f"s{n}" for n in range(30)}


def test_of_several_hypotheses_the_best_is_taken_and_an_empty_one_is_empty(tmp_path):
    generated = read(tmp_path, printed(THREE, order=[2, 0, 1]))
    assert generated.in_order(3, "--source", "f") == ["first", "second", ""]


def test_the_detokenized_text_goes_before_the_hypothesis(tmp_path):
    text = "S-0\ta .\nH-0\t-0.5\ta @@b .\nD-0\t-0.5\tab.\n"
    assert read(tmp_path, text).hypotheses == {0: "ab."}


def test_hypotheses_alone_are_enough(tmp_path):
    assert read(tmp_path, "H-1\t-1\tb\nH-0\t-2\ta\n").hypotheses == {0: "a", 1: "b"}


@pytest.mark.parametrize(
    "text",
    [
        printed(THREE) + printed(THREE),
        "H-0\t-1\ta\nH-1\t-1\tb\nH-0\t-1\ta\n",
        "S-0\ta\nS-0\ta\nH-0\t-1\ta\n",
    ],
)
def test_a_sentence_that_comes_again_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match=r"has [SH]-0 once more: give the output of one run"):
        read(tmp_path, text)


@pytest.mark.parametrize("text", ["", LOG, "a text\nof two lines\n", "S-0\tonly a source\n"])
def test_another_file_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match="it is no output of fairseq-generate"):
        read(tmp_path, text)


def test_output_that_was_cut_between_two_lines_of_a_sentence_is_refused(tmp_path):
    whole = printed(THREE)
    with pytest.raises(ValueError, match="only one of H-2 and D-2"):
        read(tmp_path, whole[: whole.index("D-2")])


def test_missing_sentences_are_counted_and_the_remedy_is_named(tmp_path):
    generated = read(tmp_path, printed(dict.fromkeys(range(0, 20, 2), ("s", "t", "h"))))
    with pytest.raises(ValueError, match=r"no hypothesis of 10 of the 20 .*1, 3, 5, 7, 9, …") as no:
        generated.in_order(20, "--source", "text")
    assert "--required-batch-size-multiple 1" in str(no.value)


def test_a_text_with_fewer_lines_than_sentences_is_refused(tmp_path):
    generated = read(tmp_path, printed(THREE))
    with pytest.raises(ValueError, match=r"--source text has 2 lines, and .* has sentence 2"):
        generated.in_order(2, "--source", "text")


def test_a_file_in_another_encoding_or_a_folder_is_one_sentence(tmp_path):
    (tmp_path / "latin").write_bytes(b"H-0\t-1\tma\xf1ana\n")
    with pytest.raises(ValueError, match="no text in UTF-8"):
        read_generated(str(tmp_path / "latin"))
    with pytest.raises(ValueError, match="is a folder"):
        read_generated(str(tmp_path))
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_generated(str(tmp_path / "none"))


@pytest.mark.parametrize(
    "line", ["P-0\t-0.1", "H-\t-1\ta", "H-0 -1 a", "H-0\tno number\ta", "xH-0\t-1\ta", ""]
)
def test_other_lines_are_none(line):
    assert parse_line(line) is None


def test_a_line_is_put_together_again_from_its_parts():
    for line in ("S-12\ta b", "H-0\t-inf\t\tx\ty", "D-3\t-0.25\t"):
        parsed = parse_line(line)
        assert parsed.head + parsed.text == line
