"""Two texts that are translations of each other line by line, read with suspicion.

What cannot be meant is refused, naming file and line; what can be mended is mended and counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from messages import UsageError

BYTE_ORDER_MARK = "\ufeff"
# How a file begins that is no text, and what it is
MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")  # of UTF-16 and UTF-32
BLOCK = 1 << 20  # bytes
SAME = "same"  # of what is counted: pairs with the same text on both sides
MARK, RETURNS = (
    "mark {}",
    "returns {}",
)  # and of a file: whether it has a mark, its lines with CR LF


class Texts(NamedTuple):
    """The files of a text and of its translation."""

    source: Path
    target: Path


class Limits(NamedTuple):
    """Of a pair: words and characters at most on each side, and how much longer one may be."""

    words: int
    characters: int
    ratio: float

    def broken_by(self, pair: tuple[str, str]) -> str | None:
        """Why a pair is not taken for two sentences."""
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
    """How many lines each of two files has, which are texts and not the same file."""
    for path in texts:
        _require_text(path)
    if os.path.samefile(*texts):
        raise UsageError(
            f"source and target name the same file {texts.source}: give the text and its "
            "translation, in two files"
        )
    counts = [_count_lines(path) for path in texts]
    if counts[0] != counts[1]:
        raise UsageError(
            f"{texts.source} has {counts[0]:,} lines and {texts.target} {counts[1]:,}: line N of "
            "one has to be the translation of line N of the other"
        )
    return counts[0]


def _require_text(path: Path) -> None:
    with path.open("rb") as file:
        head = file.read(8)
    if not head:
        raise UsageError(f"{path} is empty: give a text with a sentence a line")
    for magic, name in MAGIC.items():
        if head.startswith(magic):
            raise UsageError(f"{path} is an archive of {name}: unpack it, and give the text")
    if head.startswith(WIDE_MARKS):
        raise UsageError(
            f"{path} is in UTF-16: convert it by 'iconv -f UTF-16 -t UTF-8 {path} > NEW', and "
            "give that file"
        )


def _count_lines(path: Path) -> int:
    lines, last, returns = 0, b"", False
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            lines, last = lines + block.count(b"\n"), block[-1:]
            returns = returns or b"\r" in block
    if not lines and returns:
        raise UsageError(
            f"the lines of {path} end with CR alone: convert them by \"tr '\\r' '\\n' < {path} > "
            'NEW", and give that file'
        )
    return lines + (last != b"\n")


def lines_of(path: Path, found: Counter[str]) -> Iterator[str]:
    """Yield the lines of a UTF-8 text; only "\\n" ends a line. What is mended is counted."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"{path} is no UTF-8, in line {number:,} (byte {line[error.start]:#04x}): "
                    f"convert it, such as by 'iconv -f LATIN1 -t UTF-8 {path} > NEW' where that is "
                    "what it is in, and give that file"
                ) from error
            if number == 1 and text.startswith(BYTE_ORDER_MARK):
                text = text.removeprefix(BYTE_ORDER_MARK)
                found[MARK.format(path)] += 1
            found[RETURNS.format(path)] += text.endswith("\r\n")
            yield text


def pairs_of(texts: Texts, *, lower: bool, found: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs, with single spaces and none at the ends, or in small letters."""
    for pair in zip(*(lines_of(path, found) for path in texts), strict=True):
        source, target = (" ".join((text.lower() if lower else text).split()) for text in pair)
        yield source, target


def said(found: Counter[str], why: Counter[str], pairs: int, texts: Texts) -> list[str]:
    """In words, what was found and what is done with it; `why` pairs are left out is counted."""
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in why.items())
    lines = [
        f"{texts.source} and {texts.target}: {pairs:,} pairs, "
        + (f"left out {why.total():,}: {reasons}" if why else "none left out")
    ]
    if found[SAME]:
        lines.append(f"pairs with the same text on both sides, which are kept: {found[SAME]:,}")
    for path in texts:
        if number := found[RETURNS.format(path)]:
            lines.append(f"{number:,} lines of {path.name} end with CR LF: taken as line ends")
        if found[MARK.format(path)]:
            lines.append(f"{path.name} begins with a byte order mark: left away")
    return lines
