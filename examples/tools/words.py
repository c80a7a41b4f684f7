"""Tokenise text for training.

words.py text/train tok/train de en --max-words 250 --workers 8
words.py text/train tok/train article summary --speech en --keep '<t>' --first 400 100
words.py text/train tok/train input0 --speech en --lower
"""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Callable, Iterator
from itertools import islice
from multiprocessing import Pool
from pathlib import Path
from typing import NamedTuple

from messages import one_sentence, text_files, write_line

CHUNK = 2000  # sentences that a worker takes at a time


@functools.cache
def cutter(language: str, keep: tuple[str, ...] = ()) -> Callable[[str], str]:
    """A function that tokenises a sentence with sacremoses, without escaping."""
    from sacremoses import MosesTokenizer

    tokenize = MosesTokenizer(lang=language).tokenize
    protected = [re.escape(text) for text in keep] or None
    return lambda text: tokenize(text, escape=False, return_str=True, protected_patterns=protected)


class Cut(NamedTuple):
    """How sides are tokenised: `first` words of each are taken; texts in `keep` are not split."""

    languages: tuple[str, ...]
    keep: tuple[str, ...] = ()
    first: tuple[int, ...] = ()
    lower: bool = False

    def words(self, sides: tuple[str, ...]) -> list[str]:
        texts = [
            cutter(language, self.keep)(side)
            for language, side in zip(self.languages, sides, strict=True)
        ]
        if self.lower:
            texts = [text.lower() for text in texts]
        if self.first:
            numbered = zip(texts, self.first, strict=True)
            texts = [" ".join(text.split()[:number]) for text, number in numbered]
        return texts


def pooled(cut: Cut, pairs: Iterator[tuple[str, ...]], workers: int) -> Iterator[list[str]]:
    """Yield the words of each pair, in chunks, so that a large corpus is never in memory."""
    with Pool(workers) as pool:
        while some := list(islice(pairs, 4 * workers * CHUNK)):
            yield from pool.map(cut.words, some, CHUNK)


def cut_files(
    source: str, target: str, sides: tuple[str, ...], cut: Cut, most: int | None, workers: int
) -> tuple[int, int]:
    """Tokenise SOURCE.side to TARGET.side; return the numbers of pairs written and left out."""
    written = left_out = 0
    with text_files(source, sides, "r") as files, text_files(target, sides) as outs:
        lines = (tuple(line.rstrip("\n") for line in pair) for pair in zip(*files, strict=True))
        for pair in pooled(cut, lines, workers):
            lengths = [len(side.split()) for side in pair]
            if most is not None and not all(0 < length <= most for length in lengths):
                left_out += 1
                continue
            written += 1
            write_line(outs, pair)
    return written, left_out


def main(arguments: list[str] | None = None) -> None:
    cut = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    cut.add_argument("source", help="prefix of the files to read")
    cut.add_argument("target", help="prefix of the files to write")
    cut.add_argument("languages", nargs="+", help="one language, or those of a pair")
    cut.add_argument("--max-words", type=int, help="leave out pairs with an empty or longer side")
    cut.add_argument("--workers", type=int, default=1)
    cut.add_argument("--speech", help="language of all sides, if the names are not languages")
    cut.add_argument("--keep", nargs="+", default=[], help="texts that are not split")
    cut.add_argument("--lower", action="store_true", help="lowercase the words")
    cut.add_argument("--first", nargs=2, type=int, help="words to keep of each side")
    given = cut.parse_args(arguments)
    sides = tuple(given.languages)
    languages = (given.speech,) * len(sides) if given.speech else sides
    how = Cut(languages, tuple(given.keep), tuple(given.first or ()), given.lower)
    files = given.source, given.target, sides
    with one_sentence():
        written, left_out = cut_files(*files, how, given.max_words, given.workers)
    rest = f"; left out {left_out} that are empty or longer than {given.max_words} words"
    print(f"{Path(given.source).name}: {written} pairs{rest if left_out else ''}")


if __name__ == "__main__":
    main()
