"""Read training, validation and test pairs from OPUS's OpenSubtitles."""

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

from archives import DAMAGED, unpack
from messages import text_files, write_line
from sentences import clean

GROUP = re.compile(rb"<linkGrp\b.*")
LINK = re.compile(rb"<link\b.*")
ATTRIBUTE = re.compile(rb'(\w+)\s*=\s*"([^"]*)"')
OVERLAP, SEED = 0.9, 1
Links = dict[bytes, float]


def overlaps(alignment: Path) -> Iterator[tuple[tuple[bytes, bytes], Links]]:
    """Yield each pair of subtitle files with the relative overlap in time of its links.

    A link is named as in OPUS's gzipped XCES file, such as ``"1 2;3"``.
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


def aligned_in_time(ids: Path, alignment: Path) -> Iterator[tuple[int, int]]:
    """Yield (line, number of its film) of pairs that overlap enough, from OPUS's file of ids."""
    groups = overlaps(alignment)
    documents: tuple[bytes, bytes] | None = None
    links: Links = {}
    films: dict[bytes, int] = {}
    with ids.open("rb") as lines:
        for number, line in enumerate(lines):
            source, target, remaining, right = line.rstrip(b"\n").split(b"\t")
            while documents != (source, target):
                documents, links = next(groups, (None, {}))
                if documents is None:
                    raise ValueError(
                        f"the alignment {alignment.name} does not have the documents "
                        f"{source.decode()} and {target.decode()}, or not in this order"
                    )
            if links.get(remaining + b";" + right, 0.0) >= OVERLAP:
                film = source.rpartition(b"/")[0]
                yield number, films.setdefault(film, len(films))


def write_subtitles(
    archives: Sequence[Path], languages: Sequence[str], folder: Path, sizes: dict[str, int]
) -> list[str]:
    """Write splits of the given sizes from pairs that overlap in time; return lines on them."""
    moses, alignment = archives
    stem = f"OpenSubtitles.{'-'.join(sorted(languages))}"
    with tempfile.TemporaryDirectory(dir=folder) as name:
        members = [f"{stem}.{part}" for part in (*languages, "ids")]
        *texts, ids = unpack(moses, members, Path(name))
        lines, films = array("q"), array("q")
        try:
            for line, film in aligned_in_time(ids, alignment):
                lines.append(line)
                films.append(film)
        except DAMAGED as error:
            raise ValueError(f"{alignment} is cut short or damaged: {error}") from error
        chosen = assign(lines, films, sizes)
        for language, text in zip(languages, texts, strict=True):
            distribute(text, chosen, folder, language)
    drawn = Counter(chosen.values())
    overlapping = f"{len(lines)} pairs overlap in time by {OVERLAP} or more"
    return [overlapping, *(f"{split}: {drawn[split]} pairs" for split in sizes)]


def assign(lines: Sequence[int], films: Sequence[int], sizes: dict[str, int]) -> dict[int, str]:
    """The split of each chosen line; films in validation or test give no pairs to another split."""
    source = random.Random(SEED)
    pairs_of = Counter(films)
    order = list(pairs_of)
    source.shuffle(order)
    held: dict[int, str] = {}
    remaining = {"valid": sizes["valid"], "test": sizes["test"]}
    for split, count in remaining.items():
        while count > 0:
            if not order:
                raise ValueError(f"the corpus is too small for {split}={sizes[split]} pairs")
            film = order.pop()
            held[film] = split
            count -= pairs_of[film]
    chosen: dict[int, str] = {}
    rest = array("q")
    for line, film in zip(lines, films, strict=True):
        split = held.get(film, "train")
        if split == "train":
            rest.append(line)
        elif remaining[split]:
            remaining[split] -= 1
            chosen[line] = split
    if len(rest) > sizes["train"]:
        rest = array("q", source.sample(rest, sizes["train"]))
    chosen.update(dict.fromkeys(rest, "train"))
    return chosen


def distribute(text: Path, chosen: dict[int, str], folder: Path, language: str) -> None:
    with ExitStack() as stack:
        lines = stack.enter_context(text.open("rb"))
        splits = set(chosen.values())
        files = {s: stack.enter_context(text_files(folder / s, [language])) for s in splits}
        for number, line in enumerate(lines):
            if number in chosen:
                write_line(files[chosen[number]], [clean(line) or ""])
