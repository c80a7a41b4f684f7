"""How the recipes speak: progress on standard output, and one sentence on what went wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

PROGRAM = "RECIPE_PROGRAM"  # names, in the environment, the script that a person called
FAILED, USAGE = 1, 2  # exit statuses; the second is that of parsers of options


class UsageError(ValueError):
    """A wrong option or value: the message names it and says what to give."""


def say(text: str) -> None:
    print(f"==> {text}", flush=True)


@contextmanager
def one_sentence() -> Iterator[None]:
    """End the program with a sentence on standard error where the block raises.

    The status is 2 for a ``UsageError``, and 1 for any other ``ValueError`` or ``OSError``. Other
    exceptions are mistakes of the program and keep their tracebacks.
    """
    try:
        yield
    except (OSError, ValueError) as error:
        sentence, status = f"{error}", FAILED
        if isinstance(error, UsageError):
            sentence, status = f"{error} (see --help)", USAGE
        elif isinstance(error, OSError) and error.strerror:
            sentence = f"{error.strerror}: {error.filename}"
        program = os.environ.get(PROGRAM) or Path(sys.argv[0]).name
        print(f"{program}: error: {sentence}", file=sys.stderr)
        sys.exit(status)


def write_whole(path: Path, data: bytes) -> None:
    unfinished = path.with_name(f"{path.name}.tmp")
    unfinished.write_bytes(data)
    os.replace(unfinished, path)


@contextmanager
def text_files(prefix: Path | str, ends: Sequence[str], mode: str = "w") -> Iterator[list[IO[str]]]:
    """The files PREFIX.end, opened as UTF-8 whose lines end with "\\n" alone."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(open(f"{prefix}.{end}", mode, encoding="utf-8", newline="\n"))
            for end in ends
        ]


def write_line(files: Sequence[IO[str]], texts: Iterable[str]) -> None:
    """A line in each file."""
    for file, text in zip(files, texts, strict=True):
        file.write(f"{text}\n")
