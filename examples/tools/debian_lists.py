"""Debian's package lists, for the recipes that make their data from them.

They are apt's: `Packages` says from which source each package is built, `Translation-en` has the
original descriptions, `Translation-de` and so on have their translations. They are plain or
compressed by xz, gzip or bzip2; lz4 and zstd need apt.
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
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from messages import one_sentence, say, text_files, write_line

APT_HELPER = Path("/usr/lib/apt/apt-helper")
OPENERS: dict[str, Callable[..., Any]] = {
    ".xz": lzma.open,
    ".gz": gzip.open,
    ".bz2": bz2.open,
}
SPLITS = ("train", "valid", "test")
BUCKETS = 1000
BULLET = re.compile(r"(?:[*+•·‣o-]|--)\s+")
DIGITS = re.compile(r"\d+")


def lists_of(folder: Path, kind: str) -> list[str]:
    """The text of each list of a kind, in the order of the file names."""
    paths = sorted(path for path in folder.glob(f"*{kind}*") if path.is_file())
    if not paths:
        raise ValueError(f"{folder} has no list *{kind}*: see the recipe's README.md")
    return [read_list(path) for path in paths]


def read_list(path: Path) -> str:
    try:
        if path.suffix in (".lz4", ".zst"):
            command = [str(APT_HELPER), "cat-file", str(path)]
            return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode()
        with OPENERS.get(path.suffix, open)(path, "rb") as file:
            text: str = file.read().decode("utf-8")
            return text
    except (OSError, EOFError, lzma.LZMAError, zlib.error, subprocess.SubprocessError) as error:
        raise ValueError(f"{path} is cut short or damaged: {error}") from error


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Yield the fields of each paragraph of a list; values of several lines keep their breaks."""
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
    """The source package of each package in the `Packages` lists."""
    sources: dict[str, str] = {}
    for text in texts:
        for fields in stanzas(text):
            if "Package" in fields:
                # "Source: gcc-defaults (1.203)": the version follows if it differs
                source = fields.get("Source", fields["Package"]).split(" ")[0]
                sources.setdefault(fields["Package"], source)
    return sources


def clean(text: str) -> str:
    """The text in NFC, without control characters, with one space between words."""
    text = unicodedata.normalize("NFC", text)
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)
    return " ".join(text.split())


def without_bullet(line: str) -> str:
    return line[match.end() :] if (match := BULLET.match(line)) else line


def text_key(text: str) -> str:
    """The form in which equal texts are found: without case."""
    return text.casefold()


def near_key(text: str) -> str:
    """The form in which nearly equal texts are found: without case, and with all numbers alike."""
    return DIGITS.sub("0", text_key(text))


def run(
    program: str,
    make: Callable[[argparse.Namespace], Mapping[str, Sequence[Any]]],
    columns: Mapping[str, Callable[[Any], str]],
    arguments: list[str] | None,
) -> None:
    """A recipe's program: writes a file for each split that `make` returns and each column."""
    parser = argparse.ArgumentParser(description=program)
    parser.add_argument("lists", type=Path, help="folder with the lists")
    parser.add_argument("folder", type=Path, help="folder to write to")
    for split in ("valid", "test"):
        text = f"source packages per {BUCKETS} for this split"
        parser.add_argument(f"--{split}", type=int, required=True, help=text)
    parser.add_argument("--seed", type=int, help="seed of the splits")
    options = parser.parse_args(arguments)
    with one_sentence():
        options.folder.mkdir(parents=True, exist_ok=True)
        for split, pairs in make(options).items():
            if not pairs:
                raise ValueError(
                    f"nothing is left for {split}: the lists have too few descriptions"
                )
            with text_files(options.folder / split, list(columns)) as outs:
                for pair in pairs:
                    write_line(outs, (text_of(pair) for text_of in columns.values()))
            sources = len({pair.source for pair in pairs})
            say(f"{split}: {len(pairs):,} pairs of {sources:,} source packages")


def split_of(source: str, valid: int, test: int, seed: int | None = None) -> str:
    """The split of a source package by its hash: `test` and `valid` of `BUCKETS` are held out."""
    name = source if seed is None else f"{seed} {source}"
    bucket = int(hashlib.sha256(name.encode("utf-8")).hexdigest()[:12], 16) % BUCKETS
    return "test" if bucket < test else "valid" if bucket < test + valid else "train"
