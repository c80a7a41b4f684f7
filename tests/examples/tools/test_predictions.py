"""What is written of a classified example, and which words are said to be selected."""

from dataclasses import dataclass

import torch
from predictions import read_texts, row_of, told, words_of


@dataclass
class Said:
    """As the package's classifiers say it."""

    label: str
    log_probs: dict[str, float]
    tokens: list[str]
    pooling: dict[str, torch.Tensor]


def test_a_text_ends_with_its_mark_and_a_pair_has_two():
    assert words_of(("a b",)) == ["a", "b", "</s>"]
    assert words_of(("a b", "c")) == ["a", "b", "</s>", "c", "</s>"]


def test_a_row_has_the_words_as_written_with_the_mean_weight_of_heads():
    weights = {"pooling": torch.tensor([[0.5, 0.0, 0.0], [1.0, 0.0, 0.0]])}
    said = Said("old", {"old": -0.25, "new": -1.5}, ["<unk>", "went", "</s>"], weights)
    assert row_of(said, ("Jobab went",)) == {
        "predicted": "old",
        "log_prob": -0.25,
        "words": {"pooling": 2},
        "pooling": {"pooling": [["Jobab", 0.75]]},
    }
    # Each attention of a pair has the words of its text
    weights = {
        "hypothesis": torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0]]),
        "premise": torch.tensor([[0.25, 0.75, 0.0, 0.0, 0.0]]),
    }
    row = row_of(Said("no", {"no": -0.1}, list("abecd"), weights), ("a b", "c"))
    assert row["words"] == {"hypothesis": 1, "premise": 2}
    assert row["pooling"] == {"hypothesis": [["c", 1.0]], "premise": [["a", 0.25], ["b", 0.75]]}


def test_words_are_told_by_their_share_of_the_weight_of_each_label():
    selected = [[["x", 0.5], ["y", 0.5]], [["x", 1.0]], [["z", 1.0]]]
    rows = [{"words": {"pooling": 4}, "pooling": {"pooling": words}} for words in selected]
    assert told(rows, ["one", "one", "two"]) == (
        "pooling: 1.3 of 4.0 words on average\n  one: x 75.0%, y 25.0%\n  two: z 100.0%"
    )


def test_texts_are_read_alone_or_in_pairs(tmp_path):
    (tmp_path / "test.input0").write_text("a\nb\n")
    (tmp_path / "test.input1").write_text("c\nd\n")
    assert read_texts(f"{tmp_path}/test", ["input0"]) == [("a",), ("b",)]
    assert read_texts(f"{tmp_path}/test", ["input0", "input1"]) == [("a", "c"), ("b", "d")]
