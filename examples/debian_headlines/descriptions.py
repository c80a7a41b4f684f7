"""Make summarisation data from Debian's package lists; see README.md.

    descriptions.py LISTS text --valid 35 --test 35

writes {train,valid,test}.{source,target,package} to the folder `text`, one package a line: its long
description, its one-line description, and the names of the package and its source package.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from operator import attrgetter
from typing import NamedTuple

import debian_lists as debian

BODY_WORDS = (15, 200)
TITLE_WORDS = (3, 20)


class Package(NamedTuple):
    """A package, its source package, and the body and title of its description."""

    name: str
    source: str
    body: str
    title: str


def join_body(description: str) -> str:
    """A long description as one line, without bullets and paragraph marks."""
    lines = (line.strip() for line in description.split("\n"))
    return debian.clean(" ".join(debian.without_bullet(line) for line in lines if line != "."))


def read_packages(texts: Iterable[str], sources: dict[str, str]) -> Iterator[Package]:
    """Yield each described package with a known source once, in the order of the lists."""
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


def split_packages(packages: Iterable[Package], valid: int, test: int) -> dict[str, list[Package]]:
    """The splits, each in the order of `packages`.

    Of packages with the same body, the first stays. Packages with nearly the body of a test package
    are left out of validation and training, and those with nearly that of a validation package out
    of training: descriptions of gcc-11 and gcc-12, two sources, differ only in a number.
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
    return splits


def make(options: Namespace) -> dict[str, list[Package]]:
    packages = debian.lists_of(options.lists, "Packages")
    titled = debian.lists_of(options.lists, "Translation-en")
    described = read_packages(titled, debian.read_sources(packages))
    usable = [package for package in described if is_usable(package)]
    return split_packages(usable, options.valid, options.test)


def main(arguments: list[str] | None = None) -> None:
    columns = {
        "source": attrgetter("body"),
        "target": attrgetter("title"),
        "package": lambda package: f"{package.name}\t{package.source}",
    }
    debian.run(__doc__.splitlines()[0], make, columns, arguments)


if __name__ == "__main__":
    main()
