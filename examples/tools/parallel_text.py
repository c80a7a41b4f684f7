"""Two texts that are translations of each other line by line, read with suspicion."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from messages import UsageError


class Texts(NamedTuple):
    source: Path
    target: Path


class Limits(NamedTuple):
    """Of a pair: words and characters at most on each side, and how much longer one may be."""

    words: int
    characters: int
    ratio: float

    def broken_by(self, pair: tuple[str, str]) -> str | None:
        shorter, longer = sorted(map(len, pair))
        if not shorter:
            return "with an empty side"
        if max(len(side.split()) for side in pair) > self.words:
            return f"longer than {self.words} words"
        if longer > self.characters:
            return f"longer than {self.characters} characters"
        if longer > self.ratio * shorter:
            return f"one side over {self.ratio:g} times as long as the other"
        return None


def require_texts(texts: Texts) -> int:
    """How many lines each of two files has, which are not the same file."""
    if os.path.samefile(*texts):
        raise UsageError(
            f"source and target name the same file {texts.source}: give the text and its "
            "translation, in two files"
        )
    counts = []
    for path in texts:
        with path.open("rb") as file:
            counts.append(sum(1 for _ in file))
        if not counts[-1]:
            raise UsageError(f"{path} is empty: give a text with a sentence a line")
    if counts[0] != counts[1]:
        raise UsageError(
            f"{texts.source} has {counts[0]:,} lines and {texts.target} {counts[1]:,}: line N of "
            "one has to be the translation of line N of the other"
        )
    return counts[0]


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 text, without a byte order mark; only "\\n" ends a line."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                charset = "UTF-16" if line[:2] in (b"\xff\xfe", b"\xfe\xff") else "LATIN1"
                raise UsageError(
                    f"{path} is no UTF-8, in line {number:,} (byte {line[error.start]:#04x}): unpack "
                    f"it if it is an archive, or convert it, such as by 'iconv -f {charset} -t UTF-8 "
                    f"{path} > NEW', and give that file"
                ) from error


def pairs_of(texts: Texts, *, lower: bool) -> Iterator[tuple[str, str]]:
    """Yield the pairs, with single spaces and none at the ends, or in small letters."""
    for pair in zip(*map(lines_of, texts), strict=True):
        source, target = (" ".join((text.lower() if lower else text).split()) for text in pair)
        yield source, target
