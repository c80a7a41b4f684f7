"""What is said of a file that is not loaded."""

from __future__ import annotations

TRUST = "Get the checkpoint from a source that you trust"
LONGEST_QUOTE = 80


class UnsafeCheckpointError(RuntimeError):
    """A checkpoint holds something that could run code, and was not loaded."""


class NoCheckpointError(ValueError):
    """A file is no checkpoint, or is damaged; the message says what is wrong with it."""


class MalformedCheckpointError(NoCheckpointError):
    """A checkpoint is whole and safe, and makes no sense; the message says what and why."""


def shortened(value: object) -> str:
    """A value for a message: texts and numbers as Python writes them, and not too long.

    Of anything else only the type is told: writing it out could take for ever.
    """
    if isinstance(value, str | bytes | bytearray):
        text = repr(value[:LONGEST_QUOTE])
        return text if len(value) <= LONGEST_QUOTE else f"{text} (and {len(value):,} in all)"
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**LONGEST_QUOTE else "a number of very many digits"
    return f"a {type(value).__name__}"
