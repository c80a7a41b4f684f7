"""Sentence pairs out of the files of corpora, whatever their form."""

from __future__ import annotations

import html
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from archives import unpack

SEGMENT = re.compile(rb"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE)


def sentences(file: Path, name: str) -> Iterator[bytes]:
    """Yield the sentences of a file, by the form that its name tells.

    ``.sgm`` and ``.xml`` are mteval files with one ``<seg>`` a line; ``train.tags.*`` has
    lines of tags between its sentences; any other file has a sentence a line. Lines end with
    "\\n" alone: in some corpora other line ends stand inside of sentences.
    """
    with file.open("rb") as lines:
        if name.endswith((".sgm", ".xml")):
            for line in lines:
                found = SEGMENT.search(line)
                if found:
                    text = found[1]
                    if name.endswith(".xml"):
                        text = html.unescape(text.decode("utf-8", "surrogateescape")).encode(
                            "utf-8", "surrogateescape"
                        )
                    yield text
        elif "train.tags." in name:
            yield from (line for line in lines if not line.lstrip().startswith(b"<"))
        else:
            yield from lines


def clean(text: bytes) -> str | None:
    """Single spaces, none at the ends; None where the bytes are no UTF-8."""
    try:
        return " ".join(text.decode("utf-8").split())
    except UnicodeDecodeError:
        return None


def read_pairs(
    files: list[Path], names: list[str], separator: str | None, languages: Sequence[str]
) -> Iterator[list[bytes]]:
    """Yield pairs; from one file with a separator, in the order of its languages.

    Raises:
        ValueError: the two files have different numbers of sentences.
    """
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
    number = 0
    while True:
        pair = [next(stream, None) for stream in streams]
        source, target = pair
        if source is None and target is None:
            return
        if source is None or target is None:
            counts = [
                number + (side is not None) + sum(1 for _ in stream)
                for side, stream in zip(pair, streams, strict=True)
            ]
            raise ValueError(
                f"{names[0]} and {names[1]} have {counts[0]} and {counts[1]} sentences"
            )
        number += 1
        yield [source, target]


@dataclass(frozen=True)
class Corpus:
    """A pair of texts inside an archive.

    Attributes:
        member: name of the two files in the archive, with ``{lang}`` for the language and
            ``{role}`` for src or ref; ``inner.tgz!file`` is a file of an archive inside.
        languages: source and target.
        separator: where one file has both, what stands between them and their order in it,
            such as ``||| ru,en``.
    """

    archive: Path
    member: str
    languages: tuple[str, str]
    separator: str | None = None

    def members(self) -> list[str]:
        """The names of the files, or of the one file, in the archive."""
        names = [
            self.member.replace("{lang}", language).replace("{role}", role)
            for language, role in zip(self.languages, ("src", "ref"), strict=True)
        ]
        return names if self.separator is None else names[:1]


def write_pairs(corpus: Corpus, prefix: Path, *, keep_empty: bool = False) -> str:
    """Append the pairs of a corpus to PREFIX.source and PREFIX.target; say how many.

    Args:
        keep_empty: leave nothing out, as in a test set; else a pair with an empty side, or
            with bytes that are no UTF-8, is left out and counted.

    Raises:
        ValueError: the archive is damaged or another one, the sides have different numbers of
            sentences, or one that must stay is no UTF-8.
    """
    names = corpus.members()
    written = empty = wrong = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=prefix.parent)))
        files = unpack(corpus.archive, names, folder)
        outs = [
            stack.enter_context(open(f"{prefix}.{language}", "a", encoding="utf-8", newline="\n"))
            for language in corpus.languages
        ]
        for pair in read_pairs(files, names, corpus.separator, corpus.languages):
            texts = [clean(side) for side in pair]
            if None in texts:
                wrong += 1
                if keep_empty:
                    raise ValueError(f"sentence {written + 1} of {names[0]} is no UTF-8")
                continue
            if not all(texts) and not keep_empty:
                empty += 1
                continue
            for out, text in zip(outs, texts, strict=True):
                out.write(f"{text}\n")
            written += 1
    left_out = f"; left out {empty} with an empty side, {wrong} that are no UTF-8"
    return f"{corpus.archive.name}: {written} pairs{left_out if empty or wrong else ''}"
