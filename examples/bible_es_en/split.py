"""Split the verse pairs into training, validation and test sets that share no text.

    split.py bible.es-en.tsv.xz text --valid 1000 --test 1000 --seed 1

writes {train,valid,test}.{es,en,verse} into the folder, in the order of the corpus. left-out.verse has
the verses with one text over ten times as long as the other, which are no translations. In the shipped
corpus this is only the last verse, whose English text has the translation's glossary joined to it.
"""

from __future__ import annotations

import argparse
import lzma
import random
from collections import Counter
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

SPLITS = ("train", "valid", "test")
MAX_LENGTH_RATIO = 10


class Verse(NamedTuple):
    """One verse pair: its name ("Gen 1:1") and its text in both languages."""

    name: str
    es: str
    en: str


def read_verses(path: Path) -> list[Verse]:
    """Read tab-separated book, chapter, verse, Spanish, English; `.xz` is unpacked."""
    with (lzma.open if path.suffix == ".xz" else open)(path, "rb") as file:
        text = file.read().decode("utf-8")
    rows = [line.split("\t") for line in text.rstrip("\n").split("\n")]
    return [Verse(f"{book} {chapter}:{verse}", es, en) for book, chapter, verse, es, en in rows]


def is_translation(verse: Verse) -> bool:
    shorter, longer = sorted((len(verse.es), len(verse.en)))
    return longer <= MAX_LENGTH_RATIO * shorter


def text_key(text: str) -> str:
    """The form in which texts are compared: single spaces, and no case."""
    return " ".join(text.split()).casefold()


def split_verses(verses: list[Verse], valid: int, test: int, seed: int) -> dict[str, list[Verse]]:
    """The splits, each in the order of `verses`; verses that share a text with another one are for training."""
    es_counts = Counter(text_key(verse.es) for verse in verses)
    en_counts = Counter(text_key(verse.en) for verse in verses)
    drawable = [
        verse
        for verse in verses
        if es_counts[text_key(verse.es)] == 1 and en_counts[text_key(verse.en)] == 1
    ]
    random.Random(seed).shuffle(drawable)
    split_of = {verse.name: "valid" for verse in drawable[:valid]}
    split_of |= {verse.name: "test" for verse in drawable[valid : valid + test]}
    splits: dict[str, list[Verse]] = {name: [] for name in SPLITS}
    for verse in verses:
        splits[split_of.get(verse.name, "train")].append(verse)
    return splits


def write_splits(
    splits: dict[str, list[Verse]], folder: Path, columns: dict[str, Callable[[Verse], str]]
) -> None:
    """Write a file for each split and column; a column's function gives the text for a verse."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, verses in splits.items():
        for column, text_of in columns.items():
            text = "".join(f"{text_of(verse)}\n" for verse in verses)
            (folder / f"{split}.{column}").write_bytes(text.encode("utf-8"))


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="tab-separated verses, .tsv or .tsv.xz")
    parser.add_argument("folder", type=Path, help="folder to write to")
    parser.add_argument("--valid", type=int, required=True, help="validation verses")
    parser.add_argument("--test", type=int, required=True, help="test verses")
    parser.add_argument("--seed", type=int, required=True, help="seed of the shuffle")
    options = parser.parse_args(arguments)
    corpus = read_verses(options.corpus)
    verses = [verse for verse in corpus if is_translation(verse)]
    left_out = [verse.name for verse in corpus if not is_translation(verse)]
    splits = split_verses(verses, options.valid, options.test, options.seed)
    columns = {"verse": attrgetter("name"), "es": attrgetter("es"), "en": attrgetter("en")}
    write_splits(splits, options.folder, columns)
    names = "".join(f"{name}\n" for name in left_out)
    (options.folder / "left-out.verse").write_text(names, encoding="utf-8")
    print(", ".join(f"{len(splits[name]):,} {name}" for name in SPLITS), "verses")
    if left_out:
        print(
            f"left out, with one text over {MAX_LENGTH_RATIO} times as long as the other:",
            ", ".join(left_out),
        )


if __name__ == "__main__":
    main()
