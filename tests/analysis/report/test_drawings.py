"""What grids and maps are described by."""

import json
import re

import pytest

from fairseq_entmax.analysis.report.decimals import cell_digits, decimal
from fairseq_entmax.analysis.report.drawings import (
    WIDTH,
    filled,
    grid_template,
    header,
    map_values,
    side_by_side,
)


def test_places_are_filled_with_values_of_any_type_and_values_are_not_searched_for_places():
    template = {"a": "$rows", "b": [{"c": "$title"}, "$other", "plain"]}
    made = filled(template, {"rows": [{"token": "$title"}], "title": None})
    assert made == {"a": [{"token": "$title"}], "b": [{"c": None}, "$other", "plain"]}


def test_a_title_beside_a_low_row_lies_flat_and_one_above_never():
    assert header(["encoder-self"], 34, is_row=True)["labelAngle"] == 0
    assert "labelAngle" not in header(["encoder-self"], 200, is_row=True)
    assert "labelAngle" not in header(["encoder-self"], 34)


def test_panels_stand_in_lines_as_even_as_can_be():
    assert side_by_side(5, 250, 760) == 3
    assert side_by_side(13, 140, 760) == 5
    assert side_by_side(4, 250, 760) == 2
    assert side_by_side(3, 2000, 760) == 1


def facets(spec):
    return {side: entry["field"] for side, entry in spec["facet"].items()}


def test_models_stand_side_by_side_as_far_as_a_page_is_wide_else_below_each_other():
    attentions = ["encoder-self", "decoder-self", "cross"]
    few = grid_template(["a", "b", "c"], attentions, range(6), 4)
    many = grid_template([f"model {n}" for n in range(13)], attentions, range(6), 4)
    assert facets(few) == {"row": "attention", "column": "model"}
    assert facets(many) == {"row": "model", "column": "attention"}
    assert 3 * many["spec"]["width"] < WIDTH


def test_tokens_of_a_map_are_those_of_its_axes_with_an_underscore_for_the_start_of_a_word():
    values = map_values(["a"], ["▁Ja", "'\""], ["x", "y", "</s>"], "")
    assert json.loads(re.match(r"\[.*?\]", values["downTokens"])[0]) == ["_Ja", "'\""]
    assert values["acrossValues"] == [0.5, 1.5, 2.5]
    assert (values["width"], values["height"]) == (48, 32)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (float("nan"), "–"),
        (0.0, "0.000"),
        (0.0001, "<0.001"),
        (0.9999, ">0.999"),
        (1.0, "1.000"),
        (1.2346, "1.235"),
        (-0.5, "−0.500"),
        (-0.0004, ">−0.001"),
        (-0.0, "0.000"),
    ],
)
def test_only_0_and_1_read_0_and_1(value, text):
    assert decimal(value) == text


def test_cells_of_small_numbers_have_a_decimal_more():
    assert cell_digits(-0.004, 0.03) == 3
    assert cell_digits(-0.2, 0.03) == 2
    assert cell_digits(0, 1) == 2
