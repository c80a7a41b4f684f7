"""What errors say of exceptions and of files."""

from pathlib import Path

from fairseq_entmax.reasons import named, reason


def test_a_file_can_be_seen_in_a_sentence():
    plain = {"a b.json": "a b.json", Path("é/x.json"): "é/x.json"}
    for path, text in {**plain, "": "''", " ": "' '", "a\nb": r"'a\nb'"}.items():
        assert named(path) == text


def test_a_reason_is_one_line():
    for error, text in (
        (KeyError("alpha"), "it has no 'alpha'"),
        (IndexError("9"), "it ends too early"),
        (TypeError("int"), "something in it has another form"),
        (ValueError(""), "something in it has another form"),
        (ValueError("two\nlines"), "two lines"),
        (ValueError("x" * 999), "x" * 200),
    ):
        assert reason(error) == text
