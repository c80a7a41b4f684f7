"""How error messages describe exceptions."""

from fairseq_entmax.error_messages import reason


def test_a_reason_is_one_line():
    for error, text in (
        (KeyError("alpha"), "it has no 'alpha'"),
        (IndexError("9"), "it ends too early"),
        (TypeError("int"), "it is malformed"),
        (ValueError(""), "it is malformed"),
        (ValueError("two\nlines"), "two lines"),
        (ValueError("x" * 999), "x" * 200),
    ):
        assert reason(error) == text
