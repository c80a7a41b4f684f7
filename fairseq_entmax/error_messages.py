"""The text of an exception, as part of one sentence; and that of a package that is missing."""

from __future__ import annotations

import importlib
from typing import Any

MOST = 200


def required(module: str, message: str) -> Any:
    """An optional module; if it is missing, the message says what to install."""
    try:
        importlib.import_module(module.partition(".")[0])
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(message, name=module.partition(".")[0]) from error


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
