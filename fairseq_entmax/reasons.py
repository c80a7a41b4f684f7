"""What an exception says, and which file it is about, as a part of one sentence."""

from __future__ import annotations

import os

MOST = 200


def reason(error: BaseException) -> str:
    """The reason in an exception, in one line, without the name of its class."""
    text = " ".join(str(error).split())[:MOST]
    if isinstance(error, KeyError):
        return f"it has no {text}"
    if isinstance(error, IndexError):
        return "it ends too early"
    if isinstance(error, AttributeError | TypeError | AssertionError) or not text:
        return "something in it has another form"
    return text


def named(path: str | os.PathLike[str]) -> str:
    """A path as it is; in quotes, and escaped, where it would not be seen in a sentence."""
    text = os.fspath(path)
    return text if text.isprintable() and text.strip() else repr(text)
