"""The text form of layers and of the heads of one layer, and every way to get it wrong."""

import re

import pytest
import torch

from fairseq_entmax.mappings import (
    Entmax,
    HeadsApart,
    HeadsSpec,
    mappings_for_layers,
    parse_mapping,
    parse_mappings,
)
from fairseq_entmax.mappings.layers import layers_text, names_layers


def names(specs):
    return [str(spec) for spec in specs]


# -- a list -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("softmax", ["softmax"]),
        ("softmax,sparsemax", ["softmax", "sparsemax"]),
        ("softmax*1", ["softmax"]),
        ("sparsemax*5,softmax", ["sparsemax"] * 5 + ["softmax"]),
        ("entmax:alpha=1.33*2,entmax*03", ["entmax:alpha=1.33"] * 2 + ["entmax"] * 3),
        (" softmax * 2 , entmax : alpha = 1.5 ", ["softmax", "softmax", "entmax:alpha=1.5"]),
        ("softmax*10", ["softmax"] * 10),
    ],
)
def test_a_list_is_read_in_order_with_its_repeats(text, expected):
    assert names(parse_mappings(text)) == expected


@pytest.mark.parametrize("count", ["0", "-1", "x", "", "1.5", "00", "+2", "2*3", " "])
def test_a_count_that_is_not_a_whole_number_from_one_is_refused(count):
    text = f"softmax,entmax15*{count}"
    message = rf"whole number of layers, 1 to 999, not {count!r} in {text!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_mappings(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("softmax,", ""),
        (",softmax", ""),
        ("softmax,,entmax", ""),
        ("softmax;entmax", "softmax;entmax"),
        ("*3", ""),
        ("softmax,sofmax*2", "sofmax"),
    ],
)
def test_a_list_with_an_unknown_name_is_refused(text, name):
    with pytest.raises(ValueError, match=f"unknown mapping {name!r}.*softmax, sparsemax"):
        parse_mappings(text)


def test_a_list_with_a_bad_alpha_is_refused():
    with pytest.raises(ValueError, match=r"'entmax:alpha=3'.*from 1 .* to 2 .*not 3\.0"):
        parse_mappings("softmax*2,entmax:alpha=3")


# -- a model's layers ---------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["entmax", " sparsemax ", "entmax:alpha=1.33"])
def test_a_single_mapping_serves_every_layer(text):
    assert mappings_for_layers(text, 6) == [parse_mapping(text)] * 6


@pytest.mark.parametrize("text", ["sparsemax*5,softmax", "sparsemax,sparsemax*4,softmax*1"])
def test_a_list_gives_each_layer_its_own_from_the_bottom(text):
    assert names(mappings_for_layers(text, 6)) == ["sparsemax"] * 5 + ["softmax"]


@pytest.mark.parametrize(
    ("text", "length", "layers"),
    [("softmax,entmax", 2, 6), ("softmax*7", 7, 6), ("softmax*1", 1, 6), ("softmax,entmax", 2, 1)],
)
def test_a_list_of_another_length_is_refused_with_both_lengths(text, length, layers):
    message = f"{text!r} names {length} layers, the model has {layers}; give one mapping"
    with pytest.raises(ValueError, match=re.escape(message)):
        mappings_for_layers(text, layers)


def test_an_error_in_one_layer_is_told_before_the_length():
    with pytest.raises(ValueError, match="unknown mapping 'sofmax'"):
        mappings_for_layers("softmax,sofmax", 6)


# -- the heads of one layer apart ----------------------------------------------------------------

APART = "sparsemax|softmax*7"


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        (APART, [APART]),
        (f"({APART})", [APART]),
        (f"({APART})*3,softmax*3", [APART] * 3 + ["softmax"] * 3),
        (f"{APART},softmax", [APART, "softmax"]),
        (" ( sparsemax | softmax * 07 ) * 2 , entmax ", [APART, APART, "entmax"]),
        ("(softmax*8)*2", ["(softmax*8)"] * 2),
        ("(entmax:init=1.2)*2", ["entmax:init=1.2"] * 2),
        ("softmax|softmax", ["(softmax*2)"]),
    ],
)
def test_bars_name_the_heads_of_a_layer_and_brackets_repeat_it(text, layers):
    specs = parse_mappings(text)
    assert names(specs) == layers
    assert parse_mappings(layers_text(specs)) == specs


def test_a_layer_names_a_mapping_for_each_head():
    (spec,) = parse_mappings("entmax:alpha=1.2|softmax*2|entmax:alpha=1.2")
    assert names(spec.heads) == ["entmax:alpha=1.2", "softmax", "softmax", "entmax:alpha=1.2"]


@pytest.mark.parametrize("text", [APART, f"({APART})"])
def test_heads_apart_without_a_number_of_layers_serve_every_layer(text):
    assert names(mappings_for_layers(text, 3)) == [APART] * 3
    assert not names_layers(text)


@pytest.mark.parametrize("text", [f"({APART})*1", f"{APART},softmax", "softmax*2"])
def test_a_text_with_numbers_of_layers_is_a_list(text):
    assert names_layers(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a|softmax", "unknown mapping 'a'; allowed: softmax, sparsemax"),
        ("softmax|", "unknown mapping ''"),
        ("sparsemax|softmax*7*2", "must be a whole number of heads, 1 to 999, not '7*2'"),
        ("sparsemax|softmax*0", "must be a whole number of heads, 1 to 999, not '0'"),
        ("softmax*999|sparsemax", "names more than 999 heads of one layer"),
        ("(sparsemax|softmax)*0", "must be a whole number of layers, 1 to 999, not '0'"),
        ("(softmax,sparsemax)*2", "one pair of brackets, such as .*, not '(softmax'"),
        ("((softmax|sparsemax))", "one pair of brackets, such as .*, not '((softmax|sparsemax))'"),
        ("(softmax|sparsemax)2", "one pair of brackets, such as .*, not '(softmax|sparsemax)2'"),
        ("softmax|fusedmax:tv=-1", "mapping 'fusedmax:tv=-1': tv must be"),
        ("softmax|entmax:share=model", "mapping 'entmax:share=model' among heads apart shares"),
        ("softmax|entmax:share=attention", "allowed are entmax:share=none and share=layer"),
    ],
)
def test_what_is_wrong_among_heads_apart_is_refused_in_a_sentence(text, message):
    pattern = ".*".join(map(re.escape, message.split(".*")))
    with pytest.raises(ValueError, match=pattern):
        parse_mappings(text)


def test_another_number_of_heads_is_refused_with_both():
    (spec,) = parse_mappings("sparsemax|softmax*9")
    with pytest.raises(
        ValueError, match=r"'sparsemax\|softmax\*9' names 10 heads, the layer has 8"
    ):
        spec.build(8)


def test_heads_of_the_same_text_have_one_mapping_together_and_an_alpha_each():
    (spec,) = parse_mappings("entmax|softmax*2|entmax")
    mapping = spec.build(4, torch.Generator().manual_seed(1), {"init": "1.25"})
    assert type(mapping) is HeadsApart
    assert mapping.part_of == (0, 1, 1, 0)
    assert [(name, tuple(p.shape)) for name, p in mapping.named_parameters()] == [
        ("parts.0.alpha_logit", (2,))
    ]
    assert mapping.head_values()["alpha"].tolist() == pytest.approx([1.25, 1, 1, 1.25], abs=2e-7)


def test_heads_that_are_all_the_same_are_the_mapping_itself():
    (spec,) = parse_mappings("(entmax*3)")
    mapping = spec.build(3)
    assert type(mapping) is Entmax
    assert mapping.alpha.shape == (3,)
    with pytest.raises(ValueError, match="names 3 heads, the layer has 8"):
        spec.build(8)


def test_heads_apart_share_with_their_layer_and_no_further():
    (spec,) = parse_mappings("entmax|softmax|entmax")
    assert spec.build(3, defaults={"share": "layer"}).parts[0].alpha.shape == (1,)
    with pytest.raises(ValueError, match=r"'entmax' among heads apart shares .* whole attention"):
        spec.build(3, defaults={"share": "attention"})
    (fixed,) = parse_mappings("entmax:alpha=1.5|softmax")
    assert fixed.build(2, defaults={"share": "attention"}).learned == ()


@pytest.mark.parametrize(
    ("kept", "left"),
    [
        ([0, 1], "sparsemax|softmax"),
        ([2, 0], "softmax|sparsemax"),
        ([1, 2], "softmax"),
        ([0], "sparsemax"),
        ([], "sparsemax"),
    ],
)
def test_the_text_of_the_heads_that_are_left_names_them(kept, left):
    assert (
        str(
            HeadsSpec(tuple(map(parse_mapping, ["sparsemax", "softmax", "softmax"]))).keep_heads(
                kept
            )
        )
        == left
    )
    assert parse_mapping("entmax").keep_heads(kept) == parse_mapping("entmax")
