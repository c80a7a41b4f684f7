"""What errors say of exceptions and of files."""

from pathlib import Path

import pytest

from fairseq_entmax.reasons import named, reason


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a b.json", "a b.json"),
        (Path("é/x.json"), "é/x.json"),
        ("", "''"),
        (" ", "' '"),
        ("\r", r"'\r'"),
        ("a\nb", r"'a\nb'"),
    ],
)
def test_a_file_can_be_seen_in_a_sentence(path, text):
    assert named(path) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (KeyError("alpha"), "it has no 'alpha'"),
        (IndexError("9"), "it ends too early"),
        (TypeError("int"), "something in it has another form"),
        (ValueError(""), "something in it has another form"),
        (ValueError("two\nlines"), "two lines"),
        (ValueError("x" * 999), "x" * 200),
    ],
)
def test_a_reason_is_one_line(error, text):
    assert reason(error) == text
