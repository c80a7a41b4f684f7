"""Messages of the recipes: progress on standard output, and one sentence for an error."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

PROGRAM = "RECIPE_PROGRAM"  # environment variable with the name of the script that the user called
FAILED, USAGE = 1, 2  # exit statuses; option parsers use the second


class UsageError(ValueError):
    """A wrong option or value: the message names it and says what to give."""


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


@contextmanager
def one_sentence() -> Iterator[None]:
    """If the block raises an error, end the program with one sentence on standard error.

    The status is 2 for a ``UsageError``, and 1 for any other ``ValueError`` or ``OSError``. Other
    exceptions are bugs and keep their tracebacks.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        sentence, status = f"{error}", FAILED
        if isinstance(error, UsageError):
            sentence, status = f"{error} (see --help)", USAGE
        elif isinstance(error, OSError) and error.strerror and error.filename:
            sentence = f"{error.strerror}: {error.filename}"
        program = os.environ.get(PROGRAM) or Path(sys.argv[0]).name
        print(f"{program}: error: {sentence}", file=sys.stderr)
        sys.exit(status)


@contextmanager
def text_files(prefix: Path | str, ends: Sequence[str], mode: str = "w") -> Iterator[list[IO[str]]]:
    """Open the files PREFIX.end as UTF-8, with "\\n" as the only line end."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(open(f"{prefix}.{end}", mode, encoding="utf-8", newline="\n"))
            for end in ends
        ]


def write_line(files: Sequence[IO[str]], texts: Iterable[str]) -> None:
    for file, text in zip(files, texts, strict=True):
        file.write(f"{text}\n")
