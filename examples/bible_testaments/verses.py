"""Make a task of the verses: classify an English verse by its testament, or by its book.

verses.py bible.es-en.tsv.xz text --labels testaments

writes {train,valid,test}.{input0,label,group,verse} into the folder, in the order of the corpus:
the English text, its label, its chapter, and the verse's name.

Whole chapters go to one split; README.md says how they are drawn, and what is left out. split.py of
the recipe bible_es_en has to be on PYTHONPATH.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

from split import SPLITS, Verse, is_translation, read_verses, text_key, write_splits

# Of every ROUND chapters, in the order in which they are drawn, these are for validation and for the
# test. They are at least five apart, so that a book of two to five chapters gives at most one away
ROUND, VALID, TEST = 20, (8,), (3, 13)
NEW_TESTAMENT = (
    "Matt Mark Luke John Acts Rom 1Cor 2Cor Gal Eph Phil Col 1Thess 2Thess 1Tim 2Tim Titus Phlm Heb "
    "Jas 1Pet 2Pet 1John 2John 3John Jude Rev"
)
LABELS = ("testaments", "books")


def book_of(verse: Verse) -> str:
    """The corpus's short name of the book, such as ``Gen`` or ``1Cor``."""
    return verse.name.rpartition(" ")[0]


def chapter_of(verse: Verse) -> str:
    """Book and chapter, such as ``Gen 1``."""
    return verse.name.rpartition(":")[0]


def label_of(verse: Verse, labels: str) -> str:
    book = book_of(verse)
    if labels == "books":
        return book
    return "new" if book in NEW_TESTAMENT.split() else "old"


def split_chapters(verses: Sequence[Verse]) -> dict[str, str]:
    """The split of each chapter, by its name, after a shuffle within each book."""
    chapters: dict[str, list[str]] = {}
    for chapter, book in dict.fromkeys((chapter_of(verse), book_of(verse)) for verse in verses):
        chapters.setdefault(book, []).append(chapter)
    drawing = random.Random(1)
    split_of, place = {}, 0
    for names in chapters.values():
        if len(names) == 1:
            split_of[names[0]] = "train"
            continue
        drawing.shuffle(names)
        for name in names:
            turn = place % ROUND
            split_of[name] = "valid" if turn in VALID else "test" if turn in TEST else "train"
            place += 1
    return split_of


def split_verses(verses: Sequence[Verse]) -> dict[str, list[Verse]]:
    """The splits, in the order of the corpus, of whole chapters; no text is in two splits."""
    split_of = split_chapters(verses)
    splits: dict[str, list[Verse]] = {}
    seen: set[str] = set()  # texts of earlier splits
    for name in reversed(SPLITS):
        own = [verse for verse in verses if split_of[chapter_of(verse)] == name]
        splits[name] = [verse for verse in own if text_key(verse.en) not in seen]
        seen.update(text_key(verse.en) for verse in own)
    return {name: splits[name] for name in SPLITS}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path, help="tab-separated verses, .tsv or .tsv.xz")
    parser.add_argument("folder", type=Path, help="folder to write to")
    parser.add_argument("--labels", choices=LABELS, default=LABELS[0])
    parser.add_argument("--every", type=int, default=1, help="take one verse in so many")
    options = parser.parse_args(arguments)
    corpus = read_verses(options.corpus)[:: options.every]
    verses = [verse for verse in corpus if is_translation(verse)]
    splits = split_verses(verses)
    columns = {
        "input0": attrgetter("en"),
        "label": partial(label_of, labels=options.labels),
        "group": chapter_of,
        "verse": attrgetter("name"),
    }
    write_splits(splits, options.folder, columns)


if __name__ == "__main__":
    main()
