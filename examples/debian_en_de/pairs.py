"""Make English-German data from Debian's package lists; see README.md.

    pairs.py LISTS text --valid 50 --test 50 --seed 1

writes {train,valid,test}.{en,de,package} to the folder `text`, one pair a line. A line of the .package
file names the package, its source package, and the part of the description that the pair is.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import debian_lists as debian

SIDES = ("en", "de")
WORDS = (2, 40)
MAX_LENGTH_RATIO = 3
DAMAGED = "\ufffd"  # stands for a character that was lost before the lists were made
LETTER = re.compile(r"[^\W\d_]")
WORD = re.compile(r"[\w-]+")


class Pair(NamedTuple):
    """A text, its translation, their package and source package, and their part in it."""

    en: str
    de: str
    package: str
    source: str
    part: str


def paragraphs(description: str) -> list[list[str]]:
    """The lines, still indented, of each paragraph below the one-line description."""
    groups = groupby(description.split("\n")[1:], key=lambda line: line.strip() in ("", "."))
    return [list(lines) for is_break, lines in groups if not is_break]


def items(lines: Iterable[str]) -> list[str]:
    """The running text of a paragraph, and each item of its list."""
    found: list[list[str]] = []
    in_item = False
    for line in lines:
        text = line.strip()
        indented = line[1:2] in (" ", "\t")
        is_bullet = bool(debian.BULLET.match(text))
        if not found or is_bullet or (in_item and not indented):
            found.append([])
            in_item = is_bullet and indented
        found[-1].append(debian.without_bullet(text) if is_bullet else text)
    return [debian.clean(" ".join(parts)) for parts in found]


def paired_parts(en: str, de: str) -> Iterator[tuple[str, str, str]]:
    """Yield the parts of a description and its translation that correspond one to one.

    These are the one-line descriptions; the paragraphs, if both have equally many; and instead of a
    paragraph its items, if both have equally many. A part has a name such as "paragraph 2, item 1".
    """
    yield debian.clean(en.partition("\n")[0]), debian.clean(de.partition("\n")[0]), "line"
    below = paragraphs(en), paragraphs(de)
    if len(below[0]) != len(below[1]):
        return
    for number, both in enumerate(zip(*below, strict=True), start=1):
        name = f"paragraph {number}"
        cut = [items(lines) for lines in both]
        if len(cut[0]) != len(cut[1]):
            yield " ".join(cut[0]), " ".join(cut[1]), name
            continue
        for item, (left, right) in enumerate(zip(*cut, strict=True), start=1):
            yield left, right, f"{name}, item {item}" if len(cut[0]) > 1 else name


def read_pairs(
    english: Iterable[str], german: Iterable[str], sources: dict[str, str]
) -> list[Pair]:
    """The parts of all translations whose original and source package are known."""
    originals = {
        fields["Description-md5"]: fields["Description-en"]
        for text in english
        for fields in debian.stanzas(text)
        if "Description-md5" in fields and "Description-en" in fields
    }
    translations: dict[tuple[str, str], str] = {}
    for text in german:
        for fields in debian.stanzas(text):
            name, md5 = fields.get("Package", ""), fields.get("Description-md5", "")
            if name in sources and md5 in originals and "Description-de" in fields:
                translations.setdefault((name, md5), fields["Description-de"])
    return [
        Pair(en, de, name, sources[name], part)
        for (name, md5), translation in translations.items()
        for en, de, part in paired_parts(originals[md5], translation)
    ]


def is_untranslated(pair: Pair) -> bool:
    """Whether the German text has the English words, whatever stands between them.

    A hyphen joins two words into one: "Weblog-Manager" is German for "weblog manager".
    """
    return WORD.findall(debian.text_key(pair.en)) == WORD.findall(debian.text_key(pair.de))


def is_usable(pair: Pair) -> bool:
    shorter, longer = sorted((len(pair.en), len(pair.de)))
    return longer <= MAX_LENGTH_RATIO * shorter and all(
        WORDS[0] <= len(text.split()) <= WORDS[1] and LETTER.search(text) and DAMAGED not in text
        for text in (pair.en, pair.de)
    )


def keys(pair: Pair) -> set[tuple[str, str]]:
    """The keys that find a pair in another split: both sides, with all numbers alike."""
    return {(side, debian.near_key(text)) for side, text in zip(SIDES, pair[:2], strict=True)}


def split_pairs(pairs: Iterable[Pair], valid: int, test: int, seed: int) -> dict[str, list[Pair]]:
    """The splits, each in the order of `pairs`.

    Of a split's pairs with the same English text, the first stays. A pair is left out of validation
    if training has nearly its text on either side, and out of the test if training or validation
    has it: what many packages say is learned, but not tested.
    """
    firsts: dict[str, dict[str, Pair]] = {name: {} for name in debian.SPLITS}
    for pair in pairs:
        split = debian.split_of(pair.source, valid, test, seed)
        firsts[split].setdefault(debian.text_key(pair.en), pair)
    splits, elsewhere = {}, set[tuple[str, str]]()
    for name, own in firsts.items():
        splits[name] = [pair for pair in own.values() if keys(pair).isdisjoint(elsewhere)]
        elsewhere = elsewhere.union(*map(keys, own.values()))
    return splits


def make(options: Namespace) -> dict[str, list[Pair]]:
    kinds = ("Packages", "Translation-de", "Translation-en")
    packages, german, english = (debian.lists_of(options.lists, kind) for kind in kinds)
    parts = read_pairs(english, german, debian.read_sources(packages))
    usable = [pair for pair in parts if not is_untranslated(pair) and is_usable(pair)]
    return split_pairs(usable, options.valid, options.test, options.seed)


def main(arguments: list[str] | None = None) -> None:
    columns = {
        "en": attrgetter("en"),
        "de": attrgetter("de"),
        "package": lambda pair: "\t".join(pair[2:]),
    }
    debian.run(__doc__.splitlines()[0], make, columns, arguments)


if __name__ == "__main__":
    main()
