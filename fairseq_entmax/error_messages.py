"""The text of an exception, as part of one sentence."""

from __future__ import annotations

MOST = 200


def reason(error: BaseException) -> str:
    """The reason that an exception gives, in one line, without the name of its class."""
    text = " ".join(str(error).split())[:MOST]
    if isinstance(error, KeyError):
        return f"it has no {text}"
    if isinstance(error, IndexError):
        return "it ends too early"
    if isinstance(error, AttributeError | TypeError | AssertionError) or not text:
        return "it is malformed"
    return text
