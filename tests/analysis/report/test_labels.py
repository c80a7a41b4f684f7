"""Names and tokens beside figures."""

from __future__ import annotations

import pytest
import vl_convert

from fairseq_entmax.analysis.report.labels import expression_of, in_lines, in_places, lines_of


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("softmax", ["softmax"]),
        ("entmax:tv=learned+softmax", ["entmax:tv=", "learned+", "softmax"]),
        ("layer 10, head 2", ["layer 10,", "head 2"]),
        ("averyveryverylongname", ["averyveryv", "erylongnam", "e"]),
        ("", [""]),
        ("===========", ["==========", "="]),
    ],
)
def test_a_name_is_broken_behind_signs_and_no_letter_is_lost(name, lines):
    assert lines_of(name, 72) == lines
    assert "".join(lines).replace(" ", "") == name.replace(" ", "")


def test_strings_are_an_expression_that_is_not_taken_for_the_function_if():
    assert expression_of("if") == '"i"+"f"'
    assert expression_of({"if": ["if", 'an "if"']}) == '{"if": ["i"+"f", "an \\"if\\""]}'


@pytest.mark.parametrize(
    "expression", [in_places(["▁if", "if", "s"]), in_lines(["if", "a model-if", "else"], 20)]
)
def test_vega_draws_what_is_called_if(expression):
    axis = {"labelExpr": expression, "values": [0.5, 1.5, 2.5]}
    x = {"field": "place", "type": "quantitative", "axis": axis}
    rows = {"values": [{"place": 0.5}, {"place": 2.5}]}
    drawn = vl_convert.vegalite_to_svg({"data": rows, "mark": "point", "encoding": {"x": x}})
    if "floor" in expression:
        assert [drawn.count(f">{token}<") for token in ("_if", "if", "s")] == [1, 1, 1]
