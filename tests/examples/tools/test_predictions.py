"""The record of a classified example, and the words that are reported as selected."""

from predictions import row_of, selected_words


def test_a_row_has_the_words_with_weight_but_no_special_symbols():
    tokens = ["<s>", "jobab", "went", "home", "</s>", "</s>", "yes", "</s>", "<pad>"]
    weights = [0.25, 0.5, 0.0, 0.125, 0.0, 0.0, 0.125, 0.0, 0.0]
    expected = [["jobab", 0.5], ["home", 0.125], ["yes", 0.125]]
    assert row_of(tokens, weights) == {"words": 4, "selected": expected}


def test_words_are_reported_by_their_share_of_each_labels_weight():
    selected = [[["x", 0.5], ["y", 0.5]], [["x", 1.0]], [["z", 1.0]]]
    rows = [{"words": 4, "selected": words} for words in selected]
    expected = "1.3 of 4.0 words on average\n  one: x 75.0%, y 25.0%\n  two: z 100.0%"
    assert selected_words(rows, ["one", "one", "two"]) == expected
