"""Debian's package lists, for the recipes that make their data of them.

The lists of apt: `Packages` says which package is built from which source, `Translation-en` has
the descriptions as they were written, `Translation-de` and so on their translations. They are
plain or packed by xz, gzip or bzip2, and by lz4 and zstd where apt is.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

APT_HELPER = Path("/usr/lib/apt/apt-helper")
MIRROR = "https://deb.debian.org/debian/dists/stable/"
LARGEST = 1 << 30  # bytes of a list; Debian's are 30 and 60 MB
BUCKETS = 1000
BULLET = re.compile(r"(?:[*+•·‣o-]|--)\s+")
DIGITS = re.compile(r"\d+")


# --- files --------------------------------------------------------------------------------


def remedy(*languages: str) -> str:
    """Return what to do where lists are missing, for descriptions in these languages."""
    # Debian packs the English ones by xz, translations by bzip2
    endings = {language: "xz" if language == "en" else "bz2" for language in languages}
    lists = [f"main/i18n/Translation-{language}.{end}" for language, end in endings.items()]
    return (
        f"take {', '.join(lists)} and main/binary-amd64/Packages.xz from {MIRROR}, "
        "put them into a folder and name it in RAW_DIR"
    )


def lists_of(folder: Path, kind: str, remedy: str) -> list[str]:
    """Return the text of each list of a kind, in the order of the files' names.

    Raises:
        ValueError: there is none, with the remedy; or one cannot be read.
    """
    paths = sorted(path for path in folder.glob(f"*{kind}*") if path.is_file())
    if not paths:
        raise ValueError(f"{folder} has no list *{kind}*: {remedy}")
    return [read_list(path) for path in paths]


def read_list(path: Path) -> str:
    """Return a list's text, unpacked by its ending, at most `LARGEST` bytes of it.

    Raises:
        ValueError: the file is damaged, too large, or lz4 where apt is not.
    """
    openers = {".xz": lzma.LZMAFile, ".gz": gzip.GzipFile, ".bz2": bz2.BZ2File}
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


# --- what is in them ----------------------------------------------------------------------


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


# --- texts --------------------------------------------------------------------------------


def clean(text: str) -> str:
    """Return the text in NFC, without control characters, with one space between words."""
    text = unicodedata.normalize("NFC", text)
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text)
    return " ".join(text.split())


def without_bullet(line: str) -> str:
    """Return a line without the mark of a list item that it may begin with."""
    return BULLET.sub("", line, count=1) if BULLET.match(line) else line


def text_key(text: str) -> str:
    """Return the form in which two texts count as the same: no capitals."""
    return text.casefold()


def near_key(text: str) -> str:
    """Return the form in which two texts count as nearly the same: all numbers alike, too."""
    return DIGITS.sub("0", text_key(text))


# --- programs and splits --------------------------------------------------------------------


def parser_of(program: str, lists: str) -> argparse.ArgumentParser:
    """Return the parser of a recipe's program: lists, folder, --valid and --test.

    Args:
        program: what it does.
        lists: the names of the lists that it reads.
    """
    parser = argparse.ArgumentParser(description=program)
    parser.add_argument("lists", type=Path, help=f"folder with {lists}")
    parser.add_argument("folder", type=Path, help="folder to write to")
    for split in ("valid", "test"):
        text = f"source packages of {BUCKETS} for this split"
        parser.add_argument(f"--{split}", type=int, required=True, help=text)
    return parser


def run(
    parser: argparse.ArgumentParser,
    make: Callable[[argparse.Namespace], str],
    arguments: list[str] | None,
) -> None:
    """Call `make` with the options, and write and print the facts that it returns.

    Where it raises ValueError or OSError, the program ends with a sentence on it.
    """
    options = parser.parse_args(arguments)
    try:
        told = make(options)
        (options.folder / "facts.txt").write_text(told, encoding="utf-8")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(told, end="")


def write_columns(folder: Path, split: str, columns: Mapping[str, Iterable[str]]) -> None:
    """Write `folder/<split>.<column>` for each column, a line for each of its texts."""
    folder.mkdir(parents=True, exist_ok=True)
    for column, lines in columns.items():
        text = "".join(f"{line}\n" for line in lines)
        (folder / f"{split}.{column}").write_bytes(text.encode("utf-8"))


def require_shares(valid: int, test: int) -> None:
    """Refuse shares of `BUCKETS` that are out of range.

    Raises:
        ValueError: one is not from 1 to a quarter.
    """
    for option, share in (("--valid", valid), ("--test", test)):
        if not 1 <= share <= BUCKETS // 4:
            raise ValueError(f"{option} got {share}: give a number from 1 to {BUCKETS // 4}")


def split_of(source: str, valid: int, test: int, seed: int | None = None) -> str:
    """Return the split of a source package: of `BUCKETS` hashes `test` and `valid` are these.

    Args:
        source: the name that is hashed, behind the seed where there is one.
        valid: hashes for validation.
        test: hashes for the test.
        seed: another one makes other splits.
    """
    name = source if seed is None else f"{seed} {source}"
    bucket = int(hashlib.sha256(name.encode("utf-8")).hexdigest()[:12], 16) % BUCKETS
    return "test" if bucket < test else "valid" if bucket < test + valid else "train"
