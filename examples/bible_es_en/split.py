"""Split the verse pairs into training, validation and test text.

Validation and test verses are drawn by a seeded shuffle from the verses whose Spanish
and whose English text both occur only once in the corpus. Every verse that shares its
text, in either language, with another verse stays in training. So no text is in two
splits. Texts are compared without regard to case and spacing.

Verses with one text over ten times as long as the other are left out, and named: they
are no translations of each other. In the shipped corpus this is the last verse alone,
whose English text has the translation's glossary joined to it.

    split.py bible.es-en.tsv.xz text --valid 1000 --test 1000 --seed 1

writes {train,valid,test}.{es,en,verse} into the folder, in the order of the corpus; a
line of the .verse file names the verse on the same line of the other two.
left-out.verse names the verses that were left out.
"""

from __future__ import annotations

import argparse
import lzma
import random
from collections import Counter
from pathlib import Path
from typing import NamedTuple

SPLITS = ("train", "valid", "test")
MAX_LENGTH_RATIO = 10
LARGEST = 1 << 28  # bytes of text; the Bible is 8 MB


class Verse(NamedTuple):
    """One verse pair: its name ("Gen 1:1") and its text in both languages."""

    name: str
    es: str
    en: str


def read_verses(path: Path) -> list[Verse]:
    """Read tab-separated book, chapter, verse, Spanish, English; `.xz` is unpacked.

    Raises:
        ValueError: the archive is damaged; or, with the line number in the message, a line
            does not have five columns, a text is empty or holds a line break, or a verse is
            named twice.
    """
    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as file:
        try:
            raw = file.read(LARGEST + 1)  # of an archive, never more than this is unpacked
            if len(raw) > LARGEST:
                raise ValueError(f"more than {LARGEST:,} bytes of text")
            text = raw.decode("utf-8")
        except (lzma.LZMAError, EOFError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error
    verses: list[Verse] = []
    seen: set[str] = set()
    for number, line in enumerate(text.rstrip("\n").split("\n"), start=1):
        columns = line.split("\t")
        if len(columns) != 5:
            raise ValueError(f"{path}, line {number}: {len(columns)} columns, expected 5")
        book, chapter, verse, es, en = columns
        name = f"{book} {chapter}:{verse}"
        for language, text in (("Spanish", es), ("English", en)):
            if len(text.splitlines()) != 1 or not text.strip():
                raise ValueError(
                    f"{path}, line {number}: the {language} text of {name} is empty "
                    "or holds a line break"
                )
        if name in seen:
            raise ValueError(f"{path}, line {number}: {name} is there a second time")
        seen.add(name)
        verses.append(Verse(name, es, en))
    return verses


def is_translation(verse: Verse) -> bool:
    """Tell whether neither text has over `MAX_LENGTH_RATIO` times the other's characters."""
    shorter, longer = sorted((len(verse.es), len(verse.en)))
    return longer <= MAX_LENGTH_RATIO * shorter


def text_key(text: str) -> str:
    """Return the form in which two texts count as the same."""
    return " ".join(text.split()).casefold()


def split_verses(verses: list[Verse], valid: int, test: int, seed: int) -> dict[str, list[Verse]]:
    """Return the three splits, each in the order of `verses`.

    Args:
        verses: the verses to split, each with a name of its own.
        valid: number of validation verses, at least 1.
        test: number of test verses, at least 1.
        seed: seed of the shuffle.

    Raises:
        ValueError: a number is below 1, or too few verses have a text of their own to
            leave any for training.
    """
    for option, size in (("--valid", valid), ("--test", test)):
        if size < 1:
            raise ValueError(f"{option} got {size}: give a number of at least 1")
    es_counts = Counter(text_key(verse.es) for verse in verses)
    en_counts = Counter(text_key(verse.en) for verse in verses)
    drawable = [
        verse
        for verse in verses
        if es_counts[text_key(verse.es)] == 1 and en_counts[text_key(verse.en)] == 1
    ]
    if len(drawable) <= valid + test:
        raise ValueError(
            f"--valid {valid} and --test {test} need more than {valid + test} verses whose "
            f"text occurs once, and the corpus has {len(drawable)}: give smaller numbers"
        )
    random.Random(seed).shuffle(drawable)
    split_of = {verse.name: "valid" for verse in drawable[:valid]}
    split_of |= {verse.name: "test" for verse in drawable[valid : valid + test]}
    splits: dict[str, list[Verse]] = {name: [] for name in SPLITS}
    for verse in verses:
        splits[split_of.get(verse.name, "train")].append(verse)
    return splits


def write_splits(splits: dict[str, list[Verse]], folder: Path) -> None:
    """Write `folder/<split>.{es,en,verse}`, a verse a line."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, verses in splits.items():
        for column, attribute in (("es", "es"), ("en", "en"), ("verse", "name")):
            text = "".join(f"{getattr(verse, attribute)}\n" for verse in verses)
            (folder / f"{split}.{column}").write_bytes(text.encode("utf-8"))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="tab-separated verses, .tsv or .tsv.xz")
    parser.add_argument("folder", type=Path, help="folder to write to")
    parser.add_argument("--valid", type=int, required=True, help="validation verses")
    parser.add_argument("--test", type=int, required=True, help="test verses")
    parser.add_argument("--seed", type=int, required=True, help="seed of the shuffle")
    options = parser.parse_args(arguments)
    try:
        corpus = read_verses(options.corpus)
        verses = [verse for verse in corpus if is_translation(verse)]
        left_out = [verse.name for verse in corpus if not is_translation(verse)]
        splits = split_verses(verses, options.valid, options.test, options.seed)
        write_splits(splits, options.folder)
        names = "".join(f"{name}\n" for name in left_out)
        (options.folder / "left-out.verse").write_text(names, encoding="utf-8")
    except (OSError, ValueError) as error:
        parser.error(str(error))
    print(", ".join(f"{len(splits[name]):,} {name}" for name in SPLITS), "verses")
    if left_out:
        print(
            f"left out, one text over {MAX_LENGTH_RATIO} times as long as the other:",
            ", ".join(left_out),
        )


if __name__ == "__main__":
    main()
