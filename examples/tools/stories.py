"""Read articles and their highlights from the .story files of CNN and Daily Mail.

stories.py text cnn_stories.tgz dailymail_stories.tgz all_train.txt all_val.txt all_test.txt

The splits and the parsing of a story follow See, Liu, Manning (2017), "Get To The Point",
github.com/abisee/cnn-dailymail, except that the text keeps its capitals.
"""

from __future__ import annotations

import gzip
import hashlib
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from archives import DAMAGED
from messages import one_sentence, text_files, write_line

HIGHLIGHT = "@highlight"
# A line that ends otherwise, such as a caption, has lost its full stop
LAST_OF_SENTENCE = tuple(".!?'`\")\u2019\u201d")
SUFFIXES = ("article", "summary", "story")


def parse_story(text: str) -> tuple[str, str]:
    """The article, and its highlights between ``<t>`` and ``</t>``, as OpenNMT writes them."""
    article: list[str] = []
    highlights: list[str] = []
    place = article
    for line in (" ".join(line.split()) for line in text.split("\n")):
        if line.startswith(HIGHLIGHT):
            place = highlights
        elif line:
            whole = line.endswith(LAST_OF_SENTENCE) or HIGHLIGHT in line
            place.append(line if whole else f"{line} .")
    return " ".join(article), " ".join(f"<t> {line} </t>" for line in highlights)


def stories_of(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name, without ``.story``, and the content of each story in an archive."""
    try:
        # gzip reports that the end of a file is missing; tarfile takes that for the last story
        with gzip.open(archive) as stream, tarfile.open(fileobj=stream, mode="r|") as opened:
            for entry in opened:
                name = entry.name.rpartition("/")[2]
                part = opened.extractfile(entry) if name.endswith(".story") else None
                if part is not None:
                    yield name.removesuffix(".story"), part.read()
    except DAMAGED as error:
        raise ValueError(f"{archive} is cut short or damaged: {error}") from error


def names_of(urls: Path) -> list[str]:
    """The names of the stories in a list of addresses: the hexadecimal SHA-1 of each address."""
    addresses = (line.strip() for line in urls.read_bytes().split(b"\n"))
    return [hashlib.sha1(line, usedforsecurity=False).hexdigest() for line in addresses if line]


def write_split(stories: Mapping[str, str], names: Sequence[str], prefix: Path) -> int:
    """Write PREFIX.article, PREFIX.summary and PREFIX.story (the names); return how many.

    Stories without an article or highlights are left out, as See et al. do in training.
    """
    written = 0
    with text_files(prefix, SUFFIXES) as outs:
        for name in names:
            article, summary = parse_story(stories[name])
            if article and summary:
                written += 1
                write_line(outs, (article, summary, name))
    return written


def write_splits(folder: Path, archives: Sequence[Path], lists: dict[str, Path]) -> Iterator[str]:
    """Write every split from its list of addresses; yield a line on each."""
    names = {split: names_of(urls) for split, urls in lists.items()}
    wanted = {name for some in names.values() for name in some}
    stories: dict[str, str] = {}
    for archive in archives:
        for name, content in stories_of(archive):
            if name in wanted:
                stories.setdefault(name, content.decode("utf-8", "replace"))
    for split, some in names.items():
        missing = [name for name in some if name not in stories]
        if missing:
            raise ValueError(
                f"{len(missing)} of the {len(some)} stories of {lists[split].name}, such as "
                f"{missing[0]}.story, are in none of "
                f"{', '.join(archive.name for archive in archives)}: these are different archives"
            )
        written = write_split(stories, some, folder / split)
        left_out = len(some) - written
        rest = f"; left out {left_out} without an article or a summary" if left_out else ""
        yield f"{split}: {written} pairs{rest}"


if __name__ == "__main__":
    text, cnn, dailymail, *of_splits = map(Path, sys.argv[1:])
    with one_sentence():
        splits = dict(zip(("train", "valid", "test"), of_splits, strict=True))
        for message in write_splits(text, (cnn, dailymail), splits):
            print(message)
