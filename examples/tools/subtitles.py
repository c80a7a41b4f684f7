"""Training, validation and test pairs out of OPUS's OpenSubtitles."""

from __future__ import annotations

import gzip
import random
import re
import tempfile
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from archives import DAMAGED, unpack
from messages import text_files, write_line
from sentences import clean

GROUP = re.compile(rb"<linkGrp\b.*")
LINK = re.compile(rb"<link\b.*")
ATTRIBUTE = re.compile(rb'(\w+)\s*=\s*"([^"]*)"')
SPLITS = ("train", "valid", "test")
Links = dict[bytes, float]


class Draw(NamedTuple):
    """Pairs of each split, of those that overlap at least so much in time, from 0 to 1."""

    train: int
    valid: int
    test: int
    overlap: float = 0.9
    seed: int = 1


def overlaps(alignment: Path) -> Iterator[tuple[tuple[bytes, bytes], Links]]:
    """Yield, for each pair of subtitle files, the relative overlap in time of its links.

    OPUS's gzipped XCES file names sentences as ``"1 2;3"``.
    """
    documents: tuple[bytes, bytes] | None = None
    links: Links = {}
    with gzip.open(alignment) as lines:
        for line in lines:
            if GROUP.search(line):
                if documents is not None:
                    yield documents, links
                attributes = dict(ATTRIBUTE.findall(line))
                documents, links = (attributes[b"fromDoc"], attributes[b"toDoc"]), {}
            elif LINK.search(line):
                attributes = dict(ATTRIBUTE.findall(line))
                if b"overlap" in attributes:
                    links[attributes[b"xtargets"]] = float(attributes[b"overlap"])
    if documents is not None:
        yield documents, links


def aligned_in_time(ids: Path, alignment: Path, least: float) -> Iterator[tuple[int, int]]:
    """Yield (line, number of its film) of pairs that overlap enough, by OPUS's file of ids."""
    groups = overlaps(alignment)
    documents: tuple[bytes, bytes] | None = None
    links: Links = {}
    films: dict[bytes, int] = {}
    with ids.open("rb") as lines:
        for number, line in enumerate(lines):
            source, target, left, right = line.rstrip(b"\n").split(b"\t")
            while documents != (source, target):
                documents, links = next(groups, (None, {}))
                if documents is None:
                    raise ValueError(
                        f"the alignment {alignment.name} does not have the documents "
                        f"{source.decode()} and {target.decode()}, or not in this order"
                    )
            if links.get(left + b";" + right, 0.0) >= least:
                film = source.rpartition(b"/")[0]
                yield number, films.setdefault(film, len(films))


def write_subtitles(
    archives: tuple[Path, Path], languages: Sequence[str], folder: Path, draw: Draw
) -> list[str]:
    """Write the splits, validation and test from films of their own; returns what was done, in lines."""
    moses, alignment = archives
    stem = f"OpenSubtitles.{'-'.join(sorted(languages))}"
    with tempfile.TemporaryDirectory(dir=folder) as name:
        members = [f"{stem}.{part}" for part in (*languages, "ids")]
        *texts, ids = unpack(moses, members, Path(name))
        lines, films = array("q"), array("q")
        try:
            for line, film in aligned_in_time(ids, alignment, draw.overlap):
                lines.append(line)
                films.append(film)
        except DAMAGED as error:
            raise ValueError(f"{alignment} is cut short or damaged: {error}") from error
        chosen = assign(lines, films, draw)
        for language, text in zip(languages, texts, strict=True):
            distribute(text, chosen, folder, language)
    sizes = Counter(chosen.values())
    overlapping = f"{len(lines)} pairs overlap in time by {draw.overlap} or more"
    return [overlapping, *(f"{split}: {sizes[split]} pairs" for split in SPLITS)]


def held_out(films: Sequence[int], draw: Draw, source: random.Random) -> dict[int, str]:
    """Films for validation and test, each with as many pairs as are drawn, or more."""
    sizes = Counter(films)
    order = list(sizes)
    source.shuffle(order)
    held: dict[int, str] = {}
    for split, wanted in (("valid", draw.valid), ("test", draw.test)):
        count = wanted
        while count > 0:
            if not order:
                raise ValueError(f"the corpus is too small for {split}={wanted} pairs")
            film = order.pop()
            held[film] = split
            count -= sizes[film]
    return held


def assign(lines: Sequence[int], films: Sequence[int], draw: Draw) -> dict[int, str]:
    """Say which line goes to which split; films of validation and test lend no pair to another."""
    source = random.Random(draw.seed)
    held = held_out(films, draw, source)
    chosen: dict[int, str] = {}
    left = {"valid": draw.valid, "test": draw.test}
    rest = array("q")
    for line, film in zip(lines, films, strict=True):
        split = held.get(film)
        if split is None:
            rest.append(line)
        elif left[split]:
            left[split] -= 1
            chosen[line] = split
    if len(rest) > draw.train:
        rest = array("q", source.sample(rest, draw.train))
    chosen.update(dict.fromkeys(rest, "train"))
    return chosen


def distribute(text: Path, chosen: dict[int, str], folder: Path, language: str) -> None:
    with ExitStack() as stack:
        lines = stack.enter_context(text.open("rb"))
        files = {s: stack.enter_context(text_files(folder / s, [language])) for s in SPLITS}
        for number, line in enumerate(lines):
            if number in chosen:
                write_line(files[chosen[number]], [clean(line) or ""])
