"""Plain-text tables."""

from fairseq_entmax.text_table import text_table


def test_columns_fit_their_widest_cell_and_numbers_are_right_aligned():
    rows = [["name", "n", "remark"], ["a", "12", "x"], ["", "3", ""]]
    assert text_table(rows, left_aligned=(0, 2)).split("\n") == [
        "name   n  remark",
        "a     12  x",
        "       3",
    ]
    # By default only the first column is left-aligned
    assert text_table([["ab", "c"], ["d", "ef"]]) == "ab   c\nd   ef"
