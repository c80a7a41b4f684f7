"""Read sentence pairs from the files of corpora, in several formats."""

from __future__ import annotations

import html
import re
import tempfile
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from archives import unpack
from messages import text_files, write_line

SEGMENT = re.compile(rb"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE)


def sentences(file: Path, name: str) -> Iterator[bytes]:
    """Yield the sentences of a file, in the format that its name implies.

    ``.sgm`` and ``.xml`` are mteval files with one ``<seg>`` a line; IWSLT's ``train.tags.*`` has
    lines of tags between its sentences, which are escaped as in its ``.xml``; any other file has a
    sentence a line. Only "\\n" ends a line: some corpora have other line ends inside sentences.
    """
    is_tagged, is_mteval = "train.tags." in name, name.endswith((".sgm", ".xml"))
    with file.open("rb") as lines:
        for line in lines:
            found = SEGMENT.search(line) if is_mteval else None
            if (is_mteval and not found) or (is_tagged and line.lstrip().startswith(b"<")):
                continue
            text = found[1] if found else line
            if is_tagged or name.endswith(".xml"):
                text = html.unescape(text.decode("utf-8", "surrogateescape"))
                text = text.encode("utf-8", "surrogateescape")
            yield text


def clean(text: bytes) -> str | None:
    """The text with single spaces, none at the ends; None if the bytes are not UTF-8."""
    try:
        return " ".join(text.decode("utf-8").split())
    except UnicodeDecodeError:
        return None


def read_pairs(
    files: list[Path], names: list[str], separator: str | None, languages: Sequence[str]
) -> Iterator[Sequence[bytes]]:
    """Yield pairs in the order of `languages`; with a separator, one file has both sides."""
    if separator is not None:
        mark, _, order = separator.partition(" ")
        places = [order.split(",").index(language) for language in languages]
        with files[0].open("rb") as lines:
            for line in lines:
                sides = line.split(mark.encode())
                if len(sides) == len(places):
                    yield [sides[place] for place in places]
        return
    streams = [sentences(file, name) for file, name in zip(files, names, strict=True)]
    counts = [0, 0]
    for pair in zip_longest(*streams):
        counts = [n + (side is not None) for n, side in zip(counts, pair, strict=True)]
        if counts[0] == counts[1]:
            yield pair
    if counts[0] != counts[1]:
        raise ValueError(f"{' and '.join(names)} have {counts[0]} and {counts[1]} sentences")


def write_pairs(
    archive: Path, member: str, prefix: Path, languages: Sequence[str], separator: str | None = None,
    *, keep_empty: bool = False,
) -> str:  # fmt: skip
    """Append the pairs of a corpus to PREFIX.source and PREFIX.target; say how many.

    `member` names the two files in the archive, with ``{lang}`` for the language and ``{role}`` for
    src or ref; or one file with both sides, given their separator and order, such as ``||| ru,en``.
    Pairs with an empty side, or with bytes that are not UTF-8, are left out and counted. With
    `keep_empty`, as for a test set, empty sides are kept, and such bytes raise ``ValueError``.
    """
    names = [
        member.replace("{lang}", language).replace("{role}", role)
        for language, role in zip(languages, ("src", "ref"), strict=True)
    ][: 2 if separator is None else 1]
    written = empty = wrong = 0
    with (
        tempfile.TemporaryDirectory(dir=prefix.parent) as folder,
        text_files(prefix, languages, "a") as outs,
    ):
        files = unpack(archive, names, Path(folder))
        for pair in read_pairs(files, names, separator, languages):
            texts = [clean(side) for side in pair]
            if None in texts and keep_empty:
                raise ValueError(f"sentence {written + 1} of {names[0]} is not UTF-8")
            if None in texts:
                wrong += 1
            elif not all(texts) and not keep_empty:
                empty += 1
            else:
                written += 1
                write_line(outs, map(str, texts))
    left_out = f"; left out {empty} with an empty side, {wrong} that are not UTF-8"
    return f"{archive.name}: {written} pairs{left_out if empty or wrong else ''}"
