"""Articles and their highlights out of the .story files of CNN and Daily Mail.

stories.py text --archives cnn_stories.tgz dailymail_stories.tgz \\
    --lists train=all_train.txt valid=all_val.txt test=all_test.txt --expect 287113/13368/11490

The splits and the reading of a story are those of See, Liu, Manning (2017), "Get To The Point",
github.com/abisee/cnn-dailymail; text stays as it is written, capitals too.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from archives import DAMAGED
from messages import UsageError, one_sentence

HIGHLIGHT = "@highlight"
# A line that ends otherwise, such as the caption of a picture, has lost its full stop
LAST_OF_SENTENCE = tuple(".!?'`\")\u2019\u201d")
SENTENCE, SENTENCE_END = "<t>", "</t>"  # around each sentence of a summary, as OpenNMT writes them
SUFFIXES = ("article", "summary", "story")


@dataclass(frozen=True)
class Story:
    """An article and the sentences of its summary; either may be empty."""

    article: str
    highlights: tuple[str, ...]

    @property
    def summary(self) -> str:
        """The highlights in one line, each between its marks."""
        return " ".join(f"{SENTENCE} {line} {SENTENCE_END}" for line in self.highlights)


def parse_story(text: str) -> Story:
    """Read a ``.story`` file: paragraphs, and after the first ``@highlight`` the highlights."""
    lines = [" ".join(line.split()) for line in text.split("\n")]
    article: list[str] = []
    highlights: list[str] = []
    place = article
    for line in lines:
        if line.startswith(HIGHLIGHT):
            place = highlights
        elif line:
            whole = line.endswith(LAST_OF_SENTENCE) or HIGHLIGHT in line
            place.append(line if whole else f"{line} .")
    return Story(" ".join(article), tuple(highlights))


def stories_of(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name, without ``.story``, and the content of each story of an archive.

    Raises:
        ValueError: the archive is damaged.
    """
    try:
        # Unpacked by gzip, which says when its end is missing; tarfile takes it for the last story
        with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as opened:
            for entry in opened:
                name = entry.name.rpartition("/")[2]
                part = opened.extractfile(entry) if name.endswith(".story") else None
                if part is not None:
                    yield name.removesuffix(".story"), part.read()
    except DAMAGED as error:
        raise ValueError(f"{archive} is cut short or damaged: {error}") from error


def names_of(urls: Path) -> list[str]:
    """The stories of a list of addresses: the SHA-1 of each, in hexadecimal digits."""
    addresses = (line.strip() for line in urls.read_bytes().split(b"\n"))
    return [hashlib.sha1(line, usedforsecurity=False).hexdigest() for line in addresses if line]


@dataclass(frozen=True)
class Spool:
    """Stories out of archives in a file, and where each begins and ends in it."""

    file: IO[bytes]
    places: dict[str, tuple[int, int]]

    def read(self, name: str) -> str:
        """The text of a story."""
        start, length = self.places[name]
        self.file.seek(start)
        return self.file.read(length).decode("utf-8", "replace")


def spool(archives: Sequence[Path], wanted: set[str], file: IO[bytes]) -> Spool:
    """Copy the wanted stories, which archives have in any order; of two with one name the first."""
    places: dict[str, tuple[int, int]] = {}
    for archive in archives:
        for name, content in stories_of(archive):
            if name in wanted and name not in places:
                places[name] = (file.tell(), len(content))
                file.write(content)
    return Spool(file, places)


def write_split(stories: Spool, names: Sequence[str], prefix: Path) -> int:
    """Write PREFIX.article, PREFIX.summary and PREFIX.story, the names; how many were written.

    Stories without an article or without highlights are left out, as See et al. leave them out
    of training.
    """
    written = 0
    with ExitStack() as stack:
        outs = [
            stack.enter_context(open(f"{prefix}.{suffix}", "w", encoding="utf-8", newline="\n"))
            for suffix in SUFFIXES
        ]
        for name in names:
            story = parse_story(stories.read(name))
            if not story.article or not story.highlights:
                continue
            for out, text in zip(outs, (story.article, story.summary, name), strict=True):
                out.write(f"{text}\n")
            written += 1
    return written


def write_splits(
    folder: Path,
    archives: Sequence[Path],
    lists: dict[str, Path],
    expect: Sequence[int] = (),
) -> Iterator[str]:
    """Write every split; yield a line on each.

    Args:
        folder: there already.
        lists: of addresses, for each split.
        expect: pairs of each split, in the order of the lists; empty takes what there is.

    Raises:
        ValueError: a story is in none of the archives, or a split has other numbers of pairs.
    """
    names = {split: names_of(urls) for split, urls in lists.items()}
    with tempfile.TemporaryFile(dir=folder) as file:
        stories = spool(archives, {name for some in names.values() for name in some}, file)
        for number, (split, some) in enumerate(names.items()):
            missing = [name for name in some if name not in stories.places]
            if missing:
                raise ValueError(
                    f"{len(missing)} of the {len(some)} stories of {lists[split].name}, such as "
                    f"{missing[0]}.story, are in none of "
                    f"{', '.join(archive.name for archive in archives)}: these are other archives"
                )
            written = write_split(stories, some, folder / split)
            left_out = len(some) - written
            if expect and written != expect[number]:
                raise ValueError(
                    f"{lists[split].name} gives {written} pairs, and {expect[number]} are "
                    "expected: it is another list (PAIRS in the environment says other numbers)"
                )
            rest = f"; left out {left_out} without an article or a summary" if left_out else ""
            yield f"{split}: {written} pairs{rest}"


def parse_numbers(text: str, splits: int) -> list[int]:
    """The pairs of each split, such as ``287113/13368/11490``; none of an empty text.

    Raises:
        UsageError: there are more or fewer numbers than splits, or other characters.
    """
    parts = text.split("/") if text else []
    if parts and not (len(parts) == splits and all(part.isdecimal() for part in parts)):
        raise UsageError(f"PAIRS is '{text}': give {splits} numbers, such as 287113/13368/11490")
    return [int(part) for part in parts]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="to write to")
    parser.add_argument("--archives", type=Path, nargs="+", required=True)
    parser.add_argument("--lists", nargs="+", required=True, metavar="SPLIT=FILE")
    parser.add_argument("--expect", default="", help="pairs of each split, such as 10/2/2")
    options = parser.parse_args(arguments)
    with one_sentence():
        lists = {
            split: Path(file) for split, _, file in (text.partition("=") for text in options.lists)
        }
        expect = parse_numbers(options.expect, len(lists))
        for line in write_splits(options.folder, options.archives, lists, expect):
            print(line)


if __name__ == "__main__":
    main()
