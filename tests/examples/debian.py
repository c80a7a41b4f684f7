"""Miniature package lists in Debian's formats: Translation-en, Translation-de, Packages."""

import bz2
import gzip
import hashlib
import importlib
import lzma
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PACK = {".xz": lzma.compress, ".gz": gzip.compress, ".bz2": bz2.compress}
THINGS = ("image", "sound", "mail", "network", "font", "graph", "text", "game", "disk", "clock")
DEEDS = ("reads", "writes", "sorts", "draws", "sends", "checks", "copies", "plays", "packs")
STEM = "deb.example.org_debian_dists_stable_main"


def program(path: Path) -> ModuleType:
    """Import a program of a recipe, which is not in a package, as a module."""
    sys.path.insert(0, str(path.parent))
    try:
        return importlib.import_module(path.stem)
    finally:
        sys.path.remove(str(path.parent))


lists = importlib.import_module("debian_lists")


def source_in(split: str, start: str = "s", seed: int | None = None) -> str:
    """The name of a source package that the hash assigns to a split."""
    names = (f"{start}{i}" for i in range(1000))
    return next(one for one in names if lists.split_of(one, 150, 150, seed) == split)


@dataclass(frozen=True)
class Entry:
    """A package as in the lists; `long` is the description below the title, as written."""

    name: str
    title: str
    long: str
    source: str = ""  # the field Source, left out if empty
    german: str = ""  # title, line break, and the text below it; no translation if empty

    @property
    def md5(self) -> str:
        return hashlib.md5(f"{self.title}\n{self.long}\n".encode()).hexdigest()

    def translation(self, language: str = "en") -> str:
        """The entry in the list of translations into a language."""
        text = f"{self.title}\n{self.long}" if language == "en" else self.german
        if not text:
            return ""
        return (
            f"Package: {self.name}\nDescription-md5: {self.md5}\n"
            f"Description-{language}: " + text.replace("\n", "\n ") + "\n\n"
        )

    def packages(self) -> str:
        source = f"Source: {self.source}\n" if self.source else ""
        return (
            f"Package: {self.name}\n{source}Version: 1.0-1\nArchitecture: amd64\n"
            f"Description: {self.title}\nDescription-md5: {self.md5}\nSection: misc\n"
            f"Priority: optional\nFilename: pool/main/{self.name}.deb\nSize: 12\n"
            f"SHA256: {hashlib.sha256(self.name.encode()).hexdigest()}\n\n"
        )


def entries(number: int) -> list[Entry]:
    """Packages to learn from; every second one has a library with development files."""
    made = []
    for i in range(number):
        thing, deed = THINGS[i % len(THINGS)], DEEDS[i % len(DEEDS)]
        other = THINGS[(i // 7 + 3) % len(THINGS)]
        name = f"{thing}{deed}{i}"
        long = (
            f"{name.capitalize()} {deed} every {thing} that it finds, and shows what it did\n"
            f"with each {other} on the way.\n.\nAmong other things:\n"
            f" * it {deed} quickly\n * see https://example.org/{name}"
        )
        made.append(Entry(name, f"program that {deed} every {thing} and {other}", long))
        if i % 2:
            more = f"{long}\n.\nThis package has the development files."
            title = f"development files of what {deed} every {thing}"
            made.append(Entry(f"lib{name}-dev", title, more, source=f"{name} (1.0-1)"))
    return made


def german(made: Sequence[Entry]) -> list[Entry]:
    """`entries` translated into an invented German, in which words are reversed."""
    texts = (re.sub("[a-z]+", lambda word: word[0][::-1], f"{e.title}\n{e.long}") for e in made)
    return [replace(e, german=text) for e, text in zip(made, texts, strict=True)]


def lists_of(made: Sequence[Entry]) -> dict[str, str]:
    """The text of each list, by its path below a component; empty lists are left out."""
    texts = {
        "i18n/Translation-en": "".join(entry.translation() for entry in made),
        "i18n/Translation-de": "".join(entry.translation("de") for entry in made),
        "binary-amd64/Packages": "".join(entry.packages() for entry in made),
    }
    return {name: text for name, text in texts.items() if text}


def write(folder: Path, made: Sequence[Entry], pack: str = "") -> None:
    """Write the lists under the names that apt gives them, compressed as their ending says."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in lists_of(made).items():
        path = folder / f"{STEM}_{name.replace('/', '_')}{pack}"
        path.write_bytes(PACK.get(pack, bytes)(text.encode()))


def write_mirror(folder: Path, made: Sequence[Entry]) -> None:
    """Write the lists into a folder as they are on a mirror."""
    for name, text in lists_of(made).items():
        pack = ".bz2" if name.endswith("-de") else ".xz"
        path = folder / "dists" / "stable" / "main" / f"{name}{pack}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PACK[pack](text.encode()))
