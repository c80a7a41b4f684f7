"""Make summarisation data of Debian's package lists; see README.md.

    descriptions.py LISTS text --valid 35 --test 35

reads the files *Translation-en* and *Packages* of the folder LISTS (plain, .xz, .gz, .bz2, or
.lz4 and .zst where apt is) and writes {train,valid,test}.{source,target,package} to the folder
`text`, a package a line: its long description, its one-line description, and its name with that
of its source package. facts.txt has the numbers that are printed.

A package's split follows from a hash of its source package's name alone, so packages built from
one source, whose descriptions repeat each other, are in one split, and no other package moves it.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import hashlib
import lzma
import re
import subprocess
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

SPLITS = ("train", "valid", "test")
BODY_WORDS = (15, 200)
TITLE_WORDS = (3, 20)
APT_HELPER = Path("/usr/lib/apt/apt-helper")
MIRROR = (
    "take main/i18n/Translation-en.xz and main/binary-amd64/Packages.xz from "
    "https://deb.debian.org/debian/dists/stable/, put both into a folder and name it in RAW_DIR"
)
LARGEST = 1 << 30  # bytes of a list; Debian's are 30 and 60 MB
BUCKETS = 1000
BULLET = re.compile(r"(?:[*+•·‣o-]|--)\s+")
DIGITS = re.compile(r"\d+")
WORD = re.compile(r"\w+")


class Package(NamedTuple):
    """A package's name, that of its source, its description's body and its title."""

    name: str
    source: str
    body: str
    title: str


# --- the lists ----------------------------------------------------------------------------


def read_list(path: Path) -> str:
    """Return a list's text, unpacked by its ending, at most `LARGEST` bytes of it.

    Raises:
        ValueError: the file is damaged, too large, or lz4 where apt is not.
    """
    openers = {".xz": lzma.open, ".gz": gzip.open, ".bz2": bz2.open}
    try:
        if path.suffix in (".lz4", ".zst"):
            raw = unpack_by_apt(path)
        elif path.suffix in openers:
            with openers[path.suffix](path) as packed:
                raw = packed.read(LARGEST + 1)
        else:
            raw = path.read_bytes()
        if len(raw) > LARGEST:
            raise ValueError(f"more than {LARGEST:,} bytes of text")
        return raw.decode("utf-8")
    except (lzma.LZMAError, EOFError, OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error


def unpack_by_apt(path: Path) -> bytes:
    """Return what apt's own reader makes of a packed list.

    Raises:
        ValueError: there is no apt, or it cannot read the file.
    """
    if not APT_HELPER.exists():
        raise ValueError(f"{path.suffix} is read by apt, which is not here: unpack the file")
    done = subprocess.run([str(APT_HELPER), "cat-file", str(path)], capture_output=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.decode("utf-8", "replace").strip() or "apt cannot read it")
    return done.stdout


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Yield a list's paragraphs as field to value; a value's further lines keep their break."""
    for paragraph in text.split("\n\n"):
        fields: dict[str, str] = {}
        name = ""
        for line in paragraph.split("\n"):
            if line[:1] in (" ", "\t"):
                if name:
                    fields[name] += "\n" + line
            elif ":" in line:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        if fields:
            yield fields


def read_sources(texts: Iterable[str]) -> dict[str, str]:
    """Return the source package of each package that the `Packages` lists name."""
    sources: dict[str, str] = {}
    for text in texts:
        for fields in stanzas(text):
            if "Package" in fields:
                # "Source: gcc-defaults (1.203)": the version follows where it is another
                source = fields.get("Source", fields["Package"]).split(" ")[0]
                sources.setdefault(fields["Package"], source)
    return sources


# --- descriptions -------------------------------------------------------------------------


def clean(text: str) -> str:
    """Return the text in NFC, without control characters, with one space between words."""
    text = unicodedata.normalize("NFC", text)
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)
    return " ".join(text.split())


def join_body(description: str) -> str:
    """Return a long description as one line: no bullets, no marks of paragraphs."""
    lines = []
    for line in description.split("\n"):
        line = line.strip()
        if line == ".":
            continue
        lines.append(BULLET.sub("", line, count=1) if BULLET.match(line) else line)
    return clean(" ".join(lines))


def read_packages(texts: Iterable[str], sources: dict[str, str]) -> Iterator[Package]:
    """Yield each described package that has a source, once, in the order of the lists."""
    seen: set[str] = set()
    for text in texts:
        for fields in stanzas(text):
            name, description = fields.get("Package", ""), fields.get("Description-en", "")
            if name not in sources or name in seen:
                continue
            seen.add(name)
            title, _, body = description.partition("\n")
            yield Package(name, sources[name], join_body(body), clean(title))


def is_usable(package: Package) -> bool:
    """Tell whether body and title have as many words as a headline and its text should."""
    body, title = len(package.body.split()), len(package.title.split())
    return BODY_WORDS[0] <= body <= BODY_WORDS[1] and TITLE_WORDS[0] <= title <= TITLE_WORDS[1]


# --- splits -------------------------------------------------------------------------------


def split_of(source: str, valid: int, test: int) -> str:
    """Return the split of a source package: of `BUCKETS` hashes `test` and `valid` are these."""
    bucket = int(hashlib.sha256(source.encode("utf-8")).hexdigest()[:12], 16) % BUCKETS
    return "test" if bucket < test else "valid" if bucket < test + valid else "train"


def body_key(body: str) -> str:
    """Return the form in which two bodies count as the same: no capitals."""
    return body.casefold()


def near_key(body: str) -> str:
    """Return the form in which two bodies count as nearly the same: all numbers alike, too."""
    return DIGITS.sub("0", body_key(body))


def split_packages(packages: Iterable[Package], valid: int, test: int) -> dict[str, list[Package]]:
    """Return the splits, each in the order of `packages`.

    Of packages with the same body the first stays. What nearly has the body of a test package is
    left out of validation and training, and what nearly has that of a validation package out of
    training: descriptions of gcc-11 and gcc-12, two sources, differ in a number.

    Args:
        packages: those to split, each name once.
        valid: of `BUCKETS`, the share of source packages for validation, at least 1.
        test: the share for the test, at least 1.

    Raises:
        ValueError: a share is out of range, or a split has no package.
    """
    for option, share in (("--valid", valid), ("--test", test)):
        if not 1 <= share <= BUCKETS // 4:
            raise ValueError(f"{option} got {share}: give a number from 1 to {BUCKETS // 4}")
    splits: dict[str, list[Package]] = {name: [] for name in SPLITS}
    bodies: set[str] = set()
    for package in packages:
        if (key := body_key(package.body)) not in bodies:
            bodies.add(key)
            splits[split_of(package.source, valid, test)].append(package)
    held_out: set[str] = set()
    for name in reversed(SPLITS):
        splits[name] = [p for p in splits[name] if near_key(p.body) not in held_out]
        held_out |= {near_key(p.body) for p in splits[name]}
        if not splits[name]:
            raise ValueError(f"no package is left for {name}: the lists have too few descriptions")
    return splits


# --- facts --------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    """Return runs of letters and digits, without capitals."""
    return WORD.findall(text.casefold())


def overlap(packages: Iterable[Package]) -> float:
    """Return the share of the titles' words that occur in their bodies, from 0 to 1."""
    found = total = 0
    for package in packages:
        body, title = set(words(package.body)), words(package.title)
        found += sum(word in body for word in title)
        total += len(title)
    return found / max(total, 1)


def facts(described: int, usable: int, splits: dict[str, list[Package]]) -> str:
    """Return what README.md says of the data, measured, a line for each split."""
    pairs = sum(len(packages) for packages in splits.values())
    lines = [
        f"{described:,} packages with a description, {usable:,} of usable length; "
        f"{pairs:,} pairs without those whose bodies are the same"
    ]
    for name, packages in splits.items():
        count = len(packages)
        body = sum(len(p.body.split()) for p in packages) / count
        title = sum(len(p.title.split()) for p in packages) / count
        lines.append(
            f"{name}: {count:,} pairs of {len({p.source for p in packages}):,} source packages; "
            f"words on average {body:.1f} in a body, {title:.1f} in a title; "
            f"{overlap(packages):.1%} of a title's words occur in its body"
        )
    return "\n".join(lines) + "\n"


def write_splits(splits: dict[str, list[Package]], folder: Path) -> None:
    """Write `folder/<split>.{source,target,package}`, a package a line."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, packages in splits.items():
        columns = {
            "source": [p.body for p in packages],
            "target": [p.title for p in packages],
            "package": [f"{p.name}\t{p.source}" for p in packages],
        }
        for column, lines in columns.items():
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{split}.{column}").write_bytes(text.encode("utf-8"))


def lists_of(folder: Path, kind: str) -> list[str]:
    """Return the text of each list of a kind, in the order of the files' names.

    Raises:
        ValueError: there is none.
    """
    paths = sorted(path for path in folder.glob(f"*{kind}*") if path.is_file())
    if not paths:
        raise ValueError(f"{folder} has no list *{kind}*: {MIRROR}")
    return [read_list(path) for path in paths]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lists", type=Path, help="folder with *Translation-en* and *Packages*")
    parser.add_argument("folder", type=Path, help="folder to write to")
    for split in ("valid", "test"):
        text = f"source packages of {BUCKETS} for this split"
        parser.add_argument(f"--{split}", type=int, required=True, help=text)
    options = parser.parse_args(arguments)
    try:
        sources = read_sources(lists_of(options.lists, "Packages"))
        described = list(read_packages(lists_of(options.lists, "Translation-en"), sources))
        usable = [package for package in described if is_usable(package)]
        splits = split_packages(usable, options.valid, options.test)
        write_splits(splits, options.folder)
        told = facts(len(described), len(usable), splits)
        (options.folder / "facts.txt").write_text(told, encoding="utf-8")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(told, end="")


if __name__ == "__main__":
    main()
