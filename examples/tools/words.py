"""Words: cut text into them for training, and put translations together again.

words.py cut text/train tok/train de en --max-words 250 --workers 8
words.py cut text/train tok/train article summary --speech en --keep '<t>' --first 400 100
words.py cut text/train tok/train input0 --speech en --lower
words.py join en < translations.tok > translations
words.py versions ja en
"""

from __future__ import annotations

import argparse
import functools
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from itertools import islice
from multiprocessing import Pool
from pathlib import Path

Chunk = list[tuple[str, ...]]
CHUNK = 2000  # sentences that a worker takes at a time
SUDACHI_MOST_BYTES = 30_000  # of a sentence; SudachiPy takes up to 49,149


def cutter(language: str, keep: Sequence[str] = ()) -> Callable[[str], str]:
    """A function from a sentence to its words with spaces between them.

    Args:
        keep: texts that stay whole, such as ``<t>``; not of Japanese.

    Japanese is cut into short units by SudachiPy (mode A), every other language by the
    tokeniser of Moses as sacremoses has it. Punctuation stays as it is: what a model is trained
    to write is compared with untouched references.
    """
    if language == "ja":
        from sudachipy import dictionary, tokenizer

        sudachi = dictionary.Dictionary(dict="core").tokenizer(tokenizer.Tokenizer.SplitMode.A)

        def cut(text: str) -> str:
            words = []
            for part in _parts(text):
                words += [word for m in sudachi.tokenize(part) if (word := m.surface().strip())]
            return " ".join(words)

        return cut
    from sacremoses import MosesTokenizer

    tokenize = MosesTokenizer(lang=language).tokenize
    kept = [re.escape(text) for text in keep] or None
    return lambda text: tokenize(text, escape=False, return_str=True, protected_patterns=kept)


def _parts(text: str) -> Iterator[str]:
    step = SUDACHI_MOST_BYTES // 4
    for start in range(0, len(text), step):
        yield text[start : start + step]


@functools.cache
def _cutters(languages: tuple[str, ...], keep: tuple[str, ...]) -> list[Callable[[str], str]]:
    return [cutter(language, keep) for language in languages]


@dataclass(frozen=True)
class Cut:
    """How the sides of a pair become words.

    Attributes:
        languages: of each side.
        keep: texts that stay whole.
        first: words of each side that are taken, the rest is left away; empty takes all.
        lower: in small letters; the text is not, as its capitals tell where a sentence begins.
    """

    languages: tuple[str, ...]
    keep: tuple[str, ...] = ()
    first: tuple[int, ...] = ()
    lower: bool = False

    def __call__(self, chunk: Chunk) -> Chunk:
        cutters = _cutters(self.languages, self.keep)
        return [
            tuple(self._words(number, cutters[number](side)) for number, side in enumerate(pair))
            for pair in chunk
        ]

    def _words(self, number: int, text: str) -> str:
        if self.lower:
            text = text.lower()
        return " ".join(text.split()[: self.first[number]]) if self.first else text


def pairs_of(prefix: str, languages: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the lines of PREFIX.language, those of the same number together."""
    with ExitStack() as stack:
        files = [
            stack.enter_context(open(f"{prefix}.{language}", encoding="utf-8", newline="\n"))
            for language in languages
        ]
        for lines in zip(*files, strict=True):
            yield tuple(line.rstrip("\n") for line in lines)


def chunks(pairs: Iterator[tuple[str, ...]]) -> Iterator[Chunk]:
    while chunk := list(islice(pairs, CHUNK)):
        yield chunk


def _by_workers(
    work: Callable[[Chunk], Chunk], todo: Iterator[Chunk], workers: int
) -> Iterator[Chunk]:
    """Like map; a few chunks a worker at a time, so a large corpus is never in memory."""
    with Pool(workers) as pool:
        while some := list(islice(todo, 4 * workers)):
            yield from pool.map(work, some, chunksize=1)


def cut_files(
    source: str,
    target: str,
    sides: tuple[str, ...],
    most: int | None,
    workers: int,
    cut: Cut | None = None,
) -> tuple[int, int]:
    """Cut SOURCE.* into TARGET.*; return how many pairs were written and left out.

    Args:
        sides: the languages, by which the files' names end.
        most: words at most on a side of a pair; longer pairs, and those with an empty side,
            are left out. None leaves nothing out.
        cut: how; None takes the names of the sides for their languages.
    """
    written = left_out = 0
    with ExitStack() as stack:
        outs = [
            stack.enter_context(open(f"{target}.{language}", "w", encoding="utf-8", newline="\n"))
            for language in sides
        ]
        work = cut or Cut(sides)
        todo = chunks(pairs_of(source, sides))
        done = map(work, todo) if workers == 1 else _by_workers(work, todo, workers)
        for chunk in done:
            for pair in chunk:
                lengths = [len(side.split()) for side in pair]
                if most is not None and not all(0 < length <= most for length in lengths):
                    left_out += 1
                    continue
                written += 1
                for out, side in zip(outs, pair, strict=True):
                    out.write(f"{side}\n")
    return written, left_out


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    cut = commands.add_parser("cut", help="cut the files of a split into words")
    cut.add_argument("source", help="prefix of the files to read")
    cut.add_argument("target", help="prefix of the files to write")
    cut.add_argument("languages", nargs="+", help="one, or those of a pair")
    cut.add_argument("--max-words", type=int, help="leave out longer and empty pairs")
    cut.add_argument("--workers", type=int, default=1)
    cut.add_argument("--speech", help="the language of both, where the names are no languages")
    cut.add_argument("--keep", nargs="+", default=[], help="texts that stay whole")
    cut.add_argument("--lower", action="store_true", help="in small letters")
    cut.add_argument("--first", nargs=2, type=int, help="words that are taken of each side")
    join = commands.add_parser("join", help="standard input without the spaces of the cutting")
    join.add_argument("language")
    versions = commands.add_parser("versions", help="print the packages that cut the languages")
    versions.add_argument("languages", nargs="+")
    options = parser.parse_args(arguments)
    if options.command == "cut":
        sides = tuple(options.languages)
        languages = (options.speech,) * len(sides) if options.speech else sides
        how = Cut(languages, tuple(options.keep), tuple(options.first or ()), options.lower)
        try:
            written, left_out = cut_files(
                options.source, options.target, sides, options.max_words, options.workers, how
            )
        except OSError as error:
            sys.exit(f"{error.strerror}: {error.filename or options.target}")
        rest = f"; left out {left_out} that are empty or longer than {options.max_words} words"
        print(f"{Path(options.source).name}: {written} pairs{rest if left_out else ''}")
    elif options.command == "versions":
        packages = ["sacremoses"] if set(options.languages) != {"ja"} else []
        if "ja" in options.languages:
            packages += ["sudachipy", "sudachidict_core"]
        print(", ".join(f"{package} {version(package)}" for package in packages))
    else:
        from sacremoses import MosesDetokenizer

        detokenize = MosesDetokenizer(lang=options.language).detokenize
        for stream in (sys.stdin, sys.stdout):
            assert isinstance(stream, io.TextIOWrapper)
            stream.reconfigure(encoding="utf-8", newline="\n")
        for line in sys.stdin:
            print(detokenize(line.split()))


if __name__ == "__main__":
    main()
