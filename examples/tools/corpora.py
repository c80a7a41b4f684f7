"""Sentence pairs out of the archives in which corpora are published.

corpora.py pairs europarl-v7.tgz 'training/europarl-v7.de-en.{lang}' en de text/train
corpora.py subtitles en-ru.txt.zip en-ru.xml.gz en ru text --train 6000000 --valid 10000 --test 10000
corpora.py checksum sha256 FILE
corpora.py test FILE
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import html
import io
import random
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
import zlib
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO

DAMAGED = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, EOFError, zlib.error)
SEGMENT = re.compile(rb"<seg\b[^>]*>(.*?)</seg>", re.IGNORECASE)
GROUP = re.compile(rb"<linkGrp\b.*")
LINK = re.compile(rb"<link\b.*")
ATTRIBUTE = re.compile(rb'(\w+)\s*=\s*"([^"]*)"')


# --- files inside archives ---------------------------------------------------


def extract(archive: BinaryIO, name: str, members: dict[str, Path]) -> None:
    """Copy members of a tar or zip archive to files.

    Raises:
        ValueError: a member is missing, or the archive is damaged; the message says which.
    """
    missing = dict(members)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                for entry in opened.namelist():
                    if entry in missing:
                        with opened.open(entry) as source:
                            _copy(source, missing.pop(entry))
        else:
            archive.seek(0)
            with tarfile.open(fileobj=archive, mode="r:*") as opened:
                for entry in opened:
                    member = entry.name.removeprefix("./")
                    source = opened.extractfile(entry) if member in missing else None
                    if source is not None:
                        _copy(source, missing.pop(member))
                    if not missing:
                        break
    except DAMAGED as error:
        raise ValueError(f"{name} is cut short or damaged: {error}") from error
    if missing:
        raise ValueError(f"{name} has no file {', '.join(missing)}: it is another archive")


def _copy(source: io.BufferedIOBase | BinaryIO, target: Path) -> None:
    with target.open("wb") as out:
        shutil.copyfileobj(source, out, 1 << 20)


def unpack(archive: Path, members: list[str], folder: Path) -> list[Path]:
    """Copy members to files in a folder; ``inner.tgz!file`` is a file of an archive inside."""
    files = [folder / str(number) for number in range(len(members))]
    inner = {member.partition("!")[0] for member in members if "!" in member}
    with archive.open("rb") as outer:
        if not inner:
            extract(outer, str(archive), dict(zip(members, files, strict=True)))
            return files
        (name,) = inner
        middle = folder / "inner"
        extract(outer, str(archive), {name: middle})
    with middle.open("rb") as opened:
        inside = [member.partition("!")[2] for member in members]
        extract(opened, f"{archive}!{name}", dict(zip(inside, files, strict=True)))
    middle.unlink()
    return files


def check(path: Path) -> None:
    """Read an archive to its end.

    Raises:
        ValueError: it is cut short or damaged.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                damaged = archive.testzip()
                if damaged is not None:
                    raise zipfile.BadZipFile(f"{damaged} does not fit its checksum")
        else:
            with gzip.open(path) as stream:
                while stream.read(1 << 22):
                    pass
    except DAMAGED as error:
        raise ValueError(f"is cut short or damaged ({error})") from error


# --- sentences of a file -----------------------------------------------------


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
    files: list[Path], names: list[str], separator: str | None, languages: list[str]
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


def write_pairs(options: argparse.Namespace) -> None:
    """Append the pairs of a corpus to PREFIX.source and PREFIX.target."""
    languages = [options.source, options.target]
    roles = ["src", "ref"]
    names = [
        options.member.replace("{lang}", language).replace("{role}", role)
        for language, role in zip(languages, roles, strict=True)
    ]
    if options.separator is not None:
        names = names[:1]
    prefix = Path(options.prefix)
    written = empty = wrong = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=prefix.parent)))
        files = unpack(Path(options.archive), names, folder)
        outs = [
            stack.enter_context(open(f"{prefix}.{language}", "a", encoding="utf-8", newline="\n"))
            for language in languages
        ]
        for pair in read_pairs(files, names, options.separator, languages):
            texts = [clean(side) for side in pair]
            if None in texts:
                wrong += 1
                if options.keep_empty:
                    raise ValueError(f"sentence {written + 1} of {names[0]} is no UTF-8")
                continue
            if not all(texts) and not options.keep_empty:
                empty += 1
                continue
            for out, text in zip(outs, texts, strict=True):
                out.write(f"{text}\n")
            written += 1
    left_out = f"; left out {empty} with an empty side, {wrong} that are no UTF-8"
    print(f"{Path(options.archive).name}: {written} pairs{left_out if empty or wrong else ''}")


# --- OpenSubtitles -----------------------------------------------------------


def overlaps(alignment: Path) -> Iterator[tuple[tuple[bytes, bytes], dict[bytes, float]]]:
    """Yield, for each pair of subtitle files, the relative overlap in time of its links.

    Args:
        alignment: OPUS's gzipped XCES file, whose links name sentences as ``"1 2;3"``.
    """
    documents, links = None, {}
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
    """Yield (line, number of its film) of the pairs that overlap enough.

    A film may have several files of subtitles: ``en/<year>/<film>/<subtitles>.xml.gz``.

    Args:
        ids: OPUS's file beside the sentences: documents and numbers of sentences of each line.
        least: the smallest relative overlap in time of source and target, 0 to 1.

    Raises:
        ValueError: the two files are not of one corpus.
    """
    groups = overlaps(alignment)
    documents, links = None, {}
    films: dict[bytes, int] = {}
    with ids.open("rb") as lines:
        for number, line in enumerate(lines):
            fields = line.rstrip(b"\n").split(b"\t")
            if len(fields) != 4:
                raise ValueError(f"line {number + 1} of the .ids file has not four fields")
            wanted = (fields[0], fields[1])
            while documents != wanted:
                documents, links = next(groups, (None, {}))
                if documents is None:
                    raise ValueError(
                        f"the alignment {alignment.name} does not have the documents "
                        f"{wanted[0].decode()} and {wanted[1].decode()}, or not in this order"
                    )
            if links.get(fields[2] + b";" + fields[3], 0.0) >= least:
                film = wanted[0].rpartition(b"/")[0]
                yield number, films.setdefault(film, len(films))


def write_subtitles(options: argparse.Namespace) -> None:
    """Draw training, validation and test pairs, the last two from films of their own."""
    languages = [options.source, options.target]
    stem = f"OpenSubtitles.{'-'.join(sorted(languages))}"
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        members = [f"{stem}.{part}" for part in (*languages, "ids")]
        *texts, ids = unpack(Path(options.moses), members, folder)
        lines, films = array("q"), array("q")
        try:
            for line, film in aligned_in_time(ids, Path(options.alignment), options.overlap):
                lines.append(line)
                films.append(film)
        except DAMAGED as error:
            raise ValueError(f"{options.alignment} is cut short or damaged: {error}") from error
        print(f"{len(lines)} pairs overlap in time by {options.overlap} or more")
        chosen = draw(lines, films, options)
        for language, text in zip(languages, texts, strict=True):
            distribute(text, chosen, options.folder, language)
    for split in ("train", "valid", "test"):
        print(f"{split}: {sum(1 for value in chosen.values() if value == split)} pairs")


def draw(lines: array[int], films: array[int], options: argparse.Namespace) -> dict[int, str]:
    """Say which line goes to which split, by the seed alone."""
    order = list(dict.fromkeys(films))
    source = random.Random(options.seed)
    source.shuffle(order)
    wanted = {"valid": options.valid, "test": options.test}
    sizes: dict[int, int] = {}
    for film in films:
        sizes[film] = sizes.get(film, 0) + 1
    held: dict[int, str] = {}
    for split, count in wanted.items():
        while count > 0:
            if not order:
                raise ValueError(f"the corpus is too small for {split}={wanted[split]} pairs")
            film = order.pop()
            held[film] = split
            count -= sizes[film]
    chosen: dict[int, str] = {}
    left = dict(wanted)
    rest = array("q")
    for line, film in zip(lines, films, strict=True):
        split = held.get(film)
        if split is None:
            rest.append(line)
        elif left[split]:
            left[split] -= 1
            chosen[line] = split
    if len(rest) > options.train:
        rest = array("q", source.sample(rest, options.train))
    chosen.update(dict.fromkeys(rest, "train"))
    return chosen


def distribute(text: Path, chosen: dict[int, str], folder: str, language: str) -> None:
    """Write the chosen lines of one language to their splits."""
    with ExitStack() as stack:
        outs = {
            split: stack.enter_context(
                (Path(folder) / f"{split}.{language}").open("w", encoding="utf-8", newline="\n")
            )
            for split in ("train", "valid", "test")
        }
        with text.open("rb") as lines:
            for number, line in enumerate(lines):
                split = chosen.get(number)
                if split is not None:
                    outs[split].write(f"{clean(line) or ''}\n")


# --- commands ----------------------------------------------------------------


def checksum(algorithm: str, path: Path) -> str:
    """The checksum of a file, in hexadecimal digits."""
    digest = hashlib.new(algorithm)
    with path.open("rb") as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    pairs = commands.add_parser("pairs", help="append the pairs of a corpus to two files")
    pairs.add_argument("archive")
    pairs.add_argument("member", help="with {lang} for the language, {role} for src or ref")
    pairs.add_argument("source")
    pairs.add_argument("target")
    pairs.add_argument("prefix", help="of the two files, which end with the languages")
    pairs.add_argument(
        "--separator",
        metavar="MARK LANGUAGES",
        help="both languages are in one file, such as '||| ru,en'",
    )
    pairs.add_argument("--keep-empty", action="store_true", help="leave nothing out")
    subtitles = commands.add_parser("subtitles", help="draw splits from OPUS's OpenSubtitles")
    subtitles.add_argument("moses", help="the zip with the sentences and their .ids")
    subtitles.add_argument("alignment", help="the .xml.gz with the overlap of each link")
    subtitles.add_argument("source")
    subtitles.add_argument("target")
    subtitles.add_argument("folder")
    subtitles.add_argument("--overlap", type=float, default=0.9, help="0 to 1 (default: 0.9)")
    for split in ("train", "valid", "test"):
        subtitles.add_argument(f"--{split}", type=int, required=True, help="pairs")
    subtitles.add_argument("--seed", type=int, default=1)
    digest = commands.add_parser("checksum", help="print the checksum of a file")
    digest.add_argument("algorithm", choices=("md5", "sha1", "sha256"))
    digest.add_argument("file")
    test = commands.add_parser("test", help="fail unless an archive is whole")
    test.add_argument("file")
    options = parser.parse_args(arguments)
    try:
        if options.command == "pairs":
            write_pairs(options)
        elif options.command == "subtitles":
            write_subtitles(options)
        elif options.command == "checksum":
            print(checksum(options.algorithm, Path(options.file)))
        else:
            check(Path(options.file))
    except ValueError as error:
        sys.exit(f"{error}")
    except OSError as error:
        sys.exit(f"{error.strerror}: {error.filename or options}")


if __name__ == "__main__":
    main()
