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

import re
from argparse import Namespace
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import debian_lists as debian

BODY_WORDS = (15, 200)
TITLE_WORDS = (3, 20)
WORD = re.compile(r"\w+")


class Package(NamedTuple):
    """A package's name, that of its source, its description's body and its title."""

    name: str
    source: str
    body: str
    title: str


# --- descriptions -------------------------------------------------------------------------


def join_body(description: str) -> str:
    """A long description as one line: no bullets, no marks of paragraphs."""
    lines = (line.strip() for line in description.split("\n"))
    return debian.clean(" ".join(debian.without_bullet(line) for line in lines if line != "."))


def read_packages(texts: Iterable[str], sources: dict[str, str]) -> Iterator[Package]:
    """Yield each described package that has a source, once, in the order of the lists."""
    seen: set[str] = set()
    for text in texts:
        for fields in debian.stanzas(text):
            name, description = fields.get("Package", ""), fields.get("Description-en", "")
            if name not in sources or name in seen:
                continue
            seen.add(name)
            title, _, body = description.partition("\n")
            yield Package(name, sources[name], join_body(body), debian.clean(title))


def is_usable(package: Package) -> bool:
    body, title = len(package.body.split()), len(package.title.split())
    return BODY_WORDS[0] <= body <= BODY_WORDS[1] and TITLE_WORDS[0] <= title <= TITLE_WORDS[1]


# --- splits -------------------------------------------------------------------------------


def split_packages(packages: Iterable[Package], valid: int, test: int) -> dict[str, list[Package]]:
    """The splits, each in the order of `packages`.

    Of packages with the same body the first stays. What nearly has the body of a test package is
    left out of validation and training, and what nearly has that of a validation package out of
    training: descriptions of gcc-11 and gcc-12, two sources, differ in a number.
    """
    splits: dict[str, list[Package]] = {name: [] for name in debian.SPLITS}
    bodies: set[str] = set()
    for package in packages:
        if (key := debian.text_key(package.body)) not in bodies:
            bodies.add(key)
            splits[debian.split_of(package.source, valid, test)].append(package)
    held_out: set[str] = set()
    for name in reversed(debian.SPLITS):
        splits[name] = [p for p in splits[name] if debian.near_key(p.body) not in held_out]
        held_out |= {debian.near_key(p.body) for p in splits[name]}
        if not splits[name]:
            raise ValueError(f"no package is left for {name}: the lists have too few descriptions")
    return splits


# --- facts --------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    return WORD.findall(text.casefold())


def overlap(packages: Iterable[Package]) -> float:
    """The share of the titles' words that occur in their bodies, from 0 to 1."""
    found = total = 0
    for package in packages:
        body, title = set(words(package.body)), words(package.title)
        found += sum(word in body for word in title)
        total += len(title)
    return found / max(total, 1)


def facts(described: int, usable: int, splits: dict[str, list[Package]]) -> str:
    """What README.md says of the data, measured, a line for each split."""
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
    for split, packages in splits.items():
        columns = {
            "source": [p.body for p in packages],
            "target": [p.title for p in packages],
            "package": [f"{p.name}\t{p.source}" for p in packages],
        }
        debian.write_columns(folder, split, columns)


def make(options: Namespace) -> str:
    packages = debian.lists_of(options.lists, "Packages")
    titled = debian.lists_of(options.lists, "Translation-en")
    described = list(read_packages(titled, debian.read_sources(packages)))
    usable = [package for package in described if is_usable(package)]
    splits = split_packages(usable, options.valid, options.test)
    write_splits(splits, options.folder)
    return facts(len(described), len(usable), splits)


def main(arguments: list[str] | None = None) -> None:
    debian.run(__doc__.splitlines()[0], make, arguments)


if __name__ == "__main__":
    main()
