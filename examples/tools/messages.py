"""How the recipes speak: progress on standard output, and one sentence on what went wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PROGRAM = "RECIPE_PROGRAM"  # names, in the environment, the script that a person called
FAILED, USAGE = 1, 2  # exit statuses; the second is that of parsers of options


class UsageError(ValueError):
    """A wrong option or value: the message names it and says what to give."""


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"==> {text}", flush=True)


@contextmanager
def one_sentence(failed: int = FAILED) -> Iterator[None]:
    """End the program with a sentence on standard error where the block raises.

    The status is 2 for a ``UsageError``, and `failed` for any other ``ValueError`` or ``OSError``.
    Other exceptions are mistakes of the program and keep their tracebacks.
    """
    try:
        yield
    except UsageError as error:
        _end(f"{error} (see --help)", USAGE)
    except OSError as error:
        _end(f"{error.strerror}: {error.filename}" if error.strerror else f"{error}", failed)
    except ValueError as error:
        _end(f"{error}", failed)


def _end(sentence: str, status: int) -> None:
    program = os.environ.get(PROGRAM) or Path(sys.argv[0]).name
    print(f"{program}: error: {sentence}", file=sys.stderr)
    sys.exit(status)
