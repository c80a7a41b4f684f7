"""Miniature package lists in the form of Debian's: Translation-en and Packages."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PACK: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".xz": lzma.compress,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
}
THINGS = ("image", "sound", "mail", "network", "font", "graph", "text", "game", "disk", "clock")
DEEDS = ("reads", "writes", "sorts", "draws", "sends", "checks", "copies", "plays", "packs")


@dataclass(frozen=True)
class Entry:
    """A package as the lists have it; `long` is the description below the title, as written."""

    name: str
    title: str
    long: str
    source: str = ""  # of the field Source; none where empty

    @property
    def md5(self) -> str:
        return hashlib.md5(f"{self.title}\n{self.long}\n".encode()).hexdigest()

    def translation(self) -> str:
        body = "".join(f" {line}\n" for line in self.long.split("\n"))
        return (
            f"Package: {self.name}\nDescription-md5: {self.md5}\n"
            f"Description-en: {self.title}\n{body}\n"
        )

    def packages(self) -> str:
        source = f"Source: {self.source}\n" if self.source else ""
        return (
            f"Package: {self.name}\n{source}Version: 1.0-1\nInstalled-Size: 12\n"
            "Maintainer: Somebody <somebody@example.org>\nArchitecture: amd64\n"
            f"Description: {self.title}\nDescription-md5: {self.md5}\nSection: misc\n"
            f"Priority: optional\nFilename: pool/main/{self.name}.deb\nSize: 12\n"
            f"SHA256: {hashlib.sha256(self.name.encode()).hexdigest()}\n\n"
        )


def entries(number: int) -> list[Entry]:
    """Packages to learn from: every second one is a library, with its development files."""
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


def write(folder: Path, made: Sequence[Entry], pack: str = "") -> None:
    """Write both lists under the names that apt gives them, packed by their ending."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = "deb.example.org_debian_dists_stable_main"
    for name, text in (
        ("i18n_Translation-en", "".join(entry.translation() for entry in made)),
        ("binary-amd64_Packages", "".join(entry.packages() for entry in made)),
    ):
        (folder / f"{stem}_{name}{pack}").write_bytes(PACK[pack](text.encode()))


def write_repository(folder: Path, made: Sequence[Entry]) -> None:
    """Write `dists/stable` of a mirror: both lists below main, and the Release that names them."""
    sums = []
    for name, text in (
        ("main/i18n/Translation-en", "".join(entry.translation() for entry in made)),
        ("main/binary-amd64/Packages", "".join(entry.packages() for entry in made)),
    ):
        content = lzma.compress(text.encode())
        path = folder / f"{name}.xz"
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        for raw, ending in ((content, ".xz"), (text.encode(), "")):
            sums.append(f" {hashlib.sha256(raw).hexdigest()} {len(raw)} {name}{ending}\n")
    (folder / "Release").write_text(
        "Origin: Debian\nSuite: stable\nCodename: stable\nArchitectures: amd64\n"
        f"Components: main\nSHA256:\n{''.join(sums)}"
    )
