"""Tables of text."""

from fairseq_entmax.text_table import text_table


def test_columns_are_as_wide_as_their_widest_cell_and_numbers_end_together():
    rows = [["name", "n", "remark"], ["a", "12", "x"], ["", "3", ""]]
    assert text_table(rows, left_aligned=(0, 2)).split("\n") == [
        "name   n  remark",
        "a     12  x",
        "       3",
    ]
    # Only the first column begins on the left unless told
    assert text_table([["ab", "c"], ["d", "ef"]]) == "ab   c\nd   ef"
