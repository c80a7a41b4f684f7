"""Heads as a text names them."""

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
    assert parse_heads(text) == {Head(*head) for head in expected}


def test_what_a_head_prints_is_what_names_it():
    head = Head("encoder-self", 3, 12)
    assert str(head) == "encoder-self:3.12"
    assert parse_heads(str(head)) == {head}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"'' names no heads: write ATTENTION:LAYER.HEAD"),
        ("0.3", r"'0.3' names no heads"),
        ("self:0.3", r"'self:0.3' names no heads: .*encoder-self, decoder-self, cross"),
        ("cross:0.1;", r"'' names no heads"),
        (
            "cross:",
            r"'' in 'cross:' is no head: write LAYER.HEAD, both counted from 0, such as cross:0.3,0.5, and a semicolon before another attention",
        ),
        ("cross:3", r"'3' in 'cross:3' is no head"),
        ("cross:0.1,", r"'' in 'cross:0.1,' is no head"),
        ("cross:0.-1", r"'0.-1' in"),
        ("cross:0.1.2", r"'0.1.2' in"),
        ("cross:a.b", r"'a.b' in"),
        ("cross:0.²", r"'0.²' in"),
        ("cross:0.12345678", r"'0.12345678' in"),
        ("cross:0.1,0.1", r"the head cross:0.1 is named twice"),
        ("cross:0.1;encoder-self:0.1;cross:00.01", r"the head cross:0.1 is named twice"),
    ],
)
def test_what_names_no_head_is_refused_with_the_form_to_write(text, message):
    with pytest.raises(ValueError, match=message):
        parse_heads(text)
