"""Names, tokens and numbers in figures."""

import pytest

from fairseq_entmax.analysis.report.labels import decimal, in_lines, lines_of


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("softmax", ["softmax"]),
        ("entmax:tv=learned+softmax", ["entmax:tv=", "learned+", "softmax"]),
        ("layer 10, head 2", ["layer 10,", "head 2"]),
        ("averyveryverylongname", ["averyveryv", "erylongnam", "e"]),
        ("", [""]),
    ],
)
def test_a_name_is_broken_after_signs_without_losing_a_letter(name, lines):
    assert lines_of(name, 72) == lines
    assert "".join(lines).replace(" ", "") == name.replace(" ", "")


@pytest.mark.parametrize("name", ["if", "a-name-with-constructor"])
def test_no_name_is_alone_in_quotes_where_vega_would_take_it_for_its_own(name):
    assert f'{{"{name}": "\\n' in in_lines([name], 100)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
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
def test_only_exact_0_and_1_are_shown_as_0_and_1(value, text):
    assert decimal(value) == text
