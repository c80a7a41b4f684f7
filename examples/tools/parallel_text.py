"""Two texts that are translations of each other line by line, read with suspicion.

What cannot be meant is refused, naming file and line; what can be mended is mended and counted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from messages import UsageError

BYTE_ORDER_MARK = "\ufeff"
WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")  # of UTF-16 and UTF-32
MAGIC = {b"\x1f\x8b": "gzip", b"\xfd7zXZ": "xz", b"BZh": "bzip2", b"PK\x03\x04": "zip"}
BLOCK = 1 << 20  # bytes


class Texts(NamedTuple):
    """The files of a text and of its translation, and the options that named them."""

    source: Path
    target: Path
    options: tuple[str, str]


@dataclass(frozen=True)
class Limits:
    """What is taken for a pair of sentences.

    Attributes:
        words: at most on each side, between spaces.
        characters: at most on each side.
        ratio: characters of the longer side by those of the shorter, at most.
    """

    words: int
    characters: int
    ratio: float


@dataclass
class Read:
    """What was found in two files.

    Attributes:
        pairs: lines of each.
        no_text: of the pairs, those with a side that is empty.
        words, characters, ratio: of the other pairs, those beyond each of the `Limits`, each
            counted once, for the first limit that it breaks.
        same: pairs that are kept, and have the same text on both sides.
        carriage_returns: lines of each file that end with CR LF.
        marks: names of files that begin with a byte order mark.
    """

    pairs: int = 0
    no_text: int = 0
    words: int = 0
    characters: int = 0
    ratio: int = 0
    same: int = 0
    carriage_returns: list[int] = field(default_factory=lambda: [0, 0])
    marks: list[str] = field(default_factory=list)

    @property
    def left_out(self) -> int:
        """Pairs that are not kept."""
        return self.no_text + self.words + self.characters + self.ratio


def require_texts(texts: Texts) -> int:
    """How many lines each of two files has.

    Raises:
        UsageError: one is missing, empty, no text, the same as the other, or has another number
            of lines.
    """
    for path, option in zip(texts[:2], texts.options, strict=True):
        if not path.is_file():
            what = "is no file that can be read twice" if path.exists() else "there is no such file"
            raise UsageError(f"option {option} got '{path}': {what}")
        _require_text(path)
    if os.path.samefile(texts.source, texts.target):
        raise UsageError(
            f"options {' and '.join(texts.options)} name the same file {texts.source}: give the "
            "text and its translation, in two files"
        )
    counts = [_count_lines(path) for path in texts[:2]]
    if counts[0] != counts[1]:
        raise UsageError(
            f"{texts.source} has {counts[0]:,} lines and {texts.target} {counts[1]:,}: line N of "
            f"one has to be the translation of line N of the other{_surplus(texts, counts)}"
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


def _surplus(texts: Texts, counts: list[int]) -> str:
    """Say so where the longer file has only empty lines more."""
    longer = texts.target if counts[1] > counts[0] else texts.source
    with longer.open("rb") as file:
        more = [line for number, line in enumerate(file) if number >= min(counts)]
    if any(line.strip() for line in more):
        return ""
    return f"; the last {len(more):,} of {longer} are empty: remove them"


def lines_of(path: Path, read: Read, side: int) -> Iterator[str]:
    """Yield the lines of a UTF-8 text; only "\\n" ends a line.

    Raises:
        ValueError: one is no UTF-8; the message names it.
    """
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
                read.marks.append(path.name)
            read.carriage_returns[side] += text.endswith("\r\n")
            yield text


def pairs_of(texts: Texts, read: Read, *, lower: bool) -> Iterator[tuple[str, str]]:
    """Yield the pairs, with single spaces and none at the ends.

    Args:
        read: counts what is mended.
        lower: in small letters.
    """
    streams = [lines_of(path, read, side) for side, path in enumerate(texts[:2])]
    for pair in zip(*streams, strict=True):
        source, target = (" ".join((text.lower() if lower else text).split()) for text in pair)
        yield source, target


def is_kept(pair: tuple[str, str], limits: Limits, read: Read) -> bool:
    """Tell whether a pair is within the limits, and count why it is not."""
    read.pairs += 1
    shorter, longer = sorted(map(len, pair))
    if not shorter:
        read.no_text += 1
    elif max(len(side.split()) for side in pair) > limits.words:
        read.words += 1
    elif longer > limits.characters:
        read.characters += 1
    elif longer > limits.ratio * shorter:
        read.ratio += 1
    else:
        read.same += pair[0] == pair[1]
        return True
    return False


def said(read: Read, texts: Texts, limits: Limits) -> list[str]:
    """In words, what was found and what is done with it."""
    reasons = {
        "with an empty side": read.no_text,
        f"longer than {limits.words} words": read.words,
        f"longer than {limits.characters} characters": read.characters,
        f"one side over {limits.ratio:g} times as long as the other": read.ratio,
    }
    why = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items() if number)
    lines = [
        f"{texts.source} and {texts.target}: {read.pairs:,} pairs, "
        + (f"left out {read.left_out:,}: {why}" if why else "none left out")
    ]
    if read.same:
        lines.append(f"pairs with the same text on both sides, which are kept: {read.same:,}")
    for path, number in zip(texts[:2], read.carriage_returns, strict=True):
        if number:
            lines.append(f"{number:,} lines of {path.name} end with CR LF: taken as line ends")
    for name in read.marks:
        lines.append(f"{name} begins with a byte order mark: left away")
    return lines
