"""How a text names heads."""

import re

import pytest

from fairseq_entmax.pruning import Head, parse_heads


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("cross:0.0", {("cross", 0, 0)}),
        (
            "encoder-self:0.3,0.5;cross:2.1",
            {("encoder-self", 0, 3), ("encoder-self", 0, 5), ("cross", 2, 1)},
        ),
        (" decoder-self : 1.2 , 11.07 ", {("decoder-self", 1, 2), ("decoder-self", 11, 7)}),
        ("cross:0.1;cross:1.0", {("cross", 0, 1), ("cross", 1, 0)}),
    ],
)
def test_heads_are_named_by_attention_layer_and_number(text, expected):
    heads = {Head(*head) for head in expected}
    assert parse_heads(text) == heads
    assert parse_heads(";".join(map(str, heads))) == heads


@pytest.mark.parametrize(
    "text",
    ["", "0.3", "self:0.3", "cross:3", "cross:0.1,", "cross:0.-1", "cross:0.²", "cross:0.1.2"],
)
def test_a_text_that_names_no_heads_is_refused_with_the_format(text):
    message = (
        rf"'{re.escape(text)}' does not name heads: write .*encoder-self, decoder-self, cross, such"
    )
    with pytest.raises(ValueError, match=message):
        parse_heads(text)


def test_a_head_that_is_named_twice_is_refused():
    with pytest.raises(ValueError, match=r"the head cross:0\.1 is named twice"):
        parse_heads("cross:0.1;encoder-self:0.1;cross:00.01")
