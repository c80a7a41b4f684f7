"""Training, validation and test text out of two files of one's own.

own_splits.py --source corpus.de --target corpus.en --languages de en text
own_splits.py --trainpref train --validpref valid --testpref test --languages de en text

writes {train,valid,test}.{de,en} into the folder, in the order of the files. What has no files of
its own is drawn from the training text: pairs whose source and whose target both occur once in it,
by a seeded shuffle. A pair that shares its source or its target with another stays in training. Training
pairs that share either with a pair of given validation or test files are left out, and such
validation pairs with the test. So no text is in two of the three. Texts are compared without regard
to case and spacing. valid.line and test.line have the lines that were drawn, from 1.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy
from messages import UsageError, one_sentence, say
from parallel_text import Limits, Read, Texts, is_kept, pairs_of, require_texts, said

DRAWN = ("valid", "test")
MOST_DRAWN = 1000  # pairs by default, or of a small corpus
LEAST_SHARE = 20  # one pair of so many
FEWEST = 40  # pairs from which some can be drawn


def key(text: str) -> int:
    """Equal for texts that count as the same; 64 bits."""
    folded = " ".join(text.split()).casefold().encode()
    return int.from_bytes(blake2b(folded, digest_size=8).digest(), "little")


@dataclass(frozen=True)
class Keys:
    """Which pairs of a text are kept, and what tells whether two have the same text.

    Attributes:
        kept: shape (pairs,), bool.
        sides: shape (pairs, 2), uint64; 0 of those that are not kept.
    """

    kept: numpy.ndarray
    sides: numpy.ndarray

    def shared_with(self, others: Sequence[Keys]) -> numpy.ndarray:
        """The pairs with the source or the target of a kept pair of others; shape (pairs,)."""
        shared = numpy.zeros(len(self.kept), dtype=bool)
        for other in others:
            for side in range(2):
                known = other.sides[other.kept, side]
                shared |= numpy.isin(self.sides[:, side], known)
        return shared & self.kept

    def of_their_own(self) -> numpy.ndarray:
        """The kept pairs whose source and whose target occur once; shape (pairs,)."""
        own = self.kept.copy()
        for side in range(2):
            found, counts = numpy.unique(self.sides[self.kept, side], return_counts=True)
            own &= numpy.isin(self.sides[:, side], found[counts == 1])
        return own


def read_keys(texts: Texts, limits: Limits, *, lower: bool, whole: bool = False) -> Keys:
    """Read two files and say what was found.

    Args:
        whole: keep every pair, as of a test.

    Raises:
        UsageError: they are no text and its translation; or the whole is to be kept, and a side
            has more characters than a model is made for.
    """
    pairs = require_texts(texts)
    kept, sides = numpy.zeros(pairs, dtype=bool), numpy.zeros((pairs, 2), dtype=numpy.uint64)
    read = Read()
    for number, pair in enumerate(pairs_of(texts, read, lower=lower)):
        kept[number] = is_kept(pair, limits, read)
        if whole and max(map(len, pair)) > limits.characters:
            side = len(pair[1]) > limits.characters
            raise UsageError(
                f"line {number + 1:,} of {texts[side]} has {len(pair[side]):,} characters, and of a "
                f"test nothing is left out: cut the line, or give --max-characters more than "
                f"{limits.characters}"
            )
        if whole or kept[number]:
            sides[number] = [key(side) for side in pair]
    if read.same == pairs:
        raise UsageError(
            f"{texts.source} and {texts.target} hold the same text: give the text and its translation"
        )
    if whole:
        kept[:], read.no_text, read.words, read.ratio = True, 0, 0, 0
    for line in said(read, texts, limits):
        say(line)
    return Keys(kept, sides)


def sizes(wanted: dict[str, int | None], pairs: int) -> dict[str, int]:
    """How many pairs are drawn for each split: as wanted, else `MOST_DRAWN` or a share."""
    share = min(MOST_DRAWN, pairs // LEAST_SHARE)
    return {split: share if number is None else number for split, number in wanted.items()}


def draw(keys: Keys, wanted: dict[str, int], seed: int, taken: numpy.ndarray) -> numpy.ndarray:
    """The split of each training pair: an index into ``(train, *wanted)``; shape (pairs,).

    Args:
        wanted: pairs of each split that is drawn.
        taken: pairs that are in given files too, and cannot be drawn; shape (pairs,).

    Raises:
        UsageError: too few pairs have a text of their own to leave any for training.
    """
    total = sum(wanted.values())
    drawable = numpy.flatnonzero(keys.of_their_own() & ~taken).tolist()
    if total and len(drawable) <= total:
        options = " and ".join(f"--{split} {number}" for split, number in wanted.items())
        raise UsageError(
            f"{options} need more than {total:,} pairs whose source and target occur once, and "
            f"there are {len(drawable):,} of them: give smaller numbers, or files by --validpref "
            "and --testpref"
        )
    random.Random(seed).shuffle(drawable)
    split = numpy.zeros(len(keys.kept), dtype=numpy.int8)
    start = 0
    for number, size in enumerate(wanted.values(), 1):
        split[drawable[start : start + size]] = number
        start += size
    return split


def write(
    texts: Texts, kept: numpy.ndarray, split: numpy.ndarray, names: Sequence[str],
    folder: Path, languages: Sequence[str], *, lower: bool,
) -> None:  # fmt: skip
    """Write the pairs that are kept to the files of their splits.

    Args:
        kept: shape (pairs,).
        split: of each pair, an index into the names; shape (pairs,).
        names: of the splits; those behind the first get a file of line numbers, too.
    """
    with ExitStack() as stack:

        def new(name: str) -> list:
            ends = [*languages, *(["line"] if name != names[0] else [])]
            paths = [folder / f"{name}.{end}" for end in ends]
            return [
                stack.enter_context(path.open("w", encoding="utf-8", newline="\n"))
                for path in paths
            ]

        files = [new(name) for name in names]
        pairs: Iterator[tuple[str, str]] = pairs_of(texts, Read(), lower=lower)
        for number, pair in enumerate(pairs):
            if not kept[number]:
                continue
            values = [*pair, str(number + 1)]
            for file, value in zip(files[split[number]], values, strict=False):
                file.write(f"{value}\n")


def given(options: argparse.Namespace, split: str) -> Texts | None:
    """The files of a split that has its own."""
    prefix = getattr(options, f"{split}pref")
    if prefix is None:
        return None
    option = f"--{split}pref"
    source, target = (Path(f"{prefix}.{language}") for language in options.languages)
    return Texts(source, target, (option, option))


def make(options: argparse.Namespace) -> None:
    """Read, draw and write, saying what is done."""
    limits = Limits(options.max_words, options.max_characters, options.max_ratio)
    lower = options.lower
    texts = given(options, "train")
    if texts is None:
        texts = Texts(options.source, options.target, ("--source", "--target"))
    own = {split: files for split in DRAWN if (files := given(options, split))}
    keys = read_keys(texts, limits, lower=lower)
    own_keys = {
        split: read_keys(files, limits, lower=lower, whole=split == "test")
        for split, files in own.items()
    }
    kept = keys.kept.copy()
    if len(own) == len(DRAWN) and not options.keep_overlap:
        shared = own_keys["valid"].shared_with([own_keys["test"]])
        own_keys["valid"].kept[shared] = False
        if shared.any():
            say(f"left out {shared.sum():,} validation pairs that share a side with the test")
    shared = keys.shared_with(list(own_keys.values()))
    if shared.any():
        where = " or ".join({"valid": "validation", "test": "test"}[split] for split in own)
        done = "kept, as --keep-overlap is given" if options.keep_overlap else "left out"
        say(f"{shared.sum():,} training pairs share a side with a pair of the {where}: {done}")
        if not options.keep_overlap:
            kept &= ~shared
    remaining = Keys(kept, keys.sides)
    to_draw = {split: getattr(options, split) for split in DRAWN if split not in own}
    _require_enough(int(kept.sum()), texts, to_draw)
    wanted = sizes(to_draw, int(kept.sum()))
    split = draw(remaining, wanted, options.seed, shared)
    write(texts, kept, split, ("train", *wanted), options.folder, options.languages, lower=lower)
    for name, files in own.items():
        its = own_keys[name].kept
        if not its.any():
            raise UsageError(f"nothing is left of {files.source} and {files.target}")
        whole = numpy.zeros(len(its), dtype=numpy.int8)
        write(files, its, whole, (name,), options.folder, options.languages, lower=lower)
    if wanted:
        drawn = " and ".join(f"{number:,} for {split}" for split, number in wanted.items())
        say(
            f"drawn {drawn} (seed {options.seed}), of pairs whose source and target occur once: a pair "
            "that shares its source or target with another stays in training"
        )
    if lower:
        say("all text is in small letters, that of the test too: scores are of small letters")


def _require_enough(pairs: int, texts: Texts, to_draw: dict[str, int | None]) -> None:
    fewest = FEWEST if None in to_draw.values() else 1
    if pairs < fewest:
        more = f", and drawing needs {fewest}: give --valid and --test" if pairs else ""
        raise UsageError(f"{pairs} pairs of {texts.source} and {texts.target} are left{more}")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder to write to, which is there")
    parser.add_argument("--source", type=Path, help="text")
    parser.add_argument("--target", type=Path, help="its translation")
    parser.add_argument("--trainpref", help="both, without .LANGUAGE")
    parser.add_argument("--languages", nargs=2, required=True, help="ends of the files' names")
    for split in DRAWN:
        parser.add_argument(f"--{split}pref", help=f"files of {split}, without .LANGUAGE")
        parser.add_argument(f"--{split}", type=int, help="pairs to draw where there are none")
    parser.add_argument("--seed", type=int, default=1, help="of the shuffle")
    parser.add_argument("--lower", action="store_true", help="all text in small letters")
    parser.add_argument("--keep-overlap", action="store_true", help="of training and given files")
    parser.add_argument("--max-words", type=int, default=200)
    parser.add_argument("--max-characters", type=int, default=1500)
    parser.add_argument("--max-ratio", type=float, default=10.0)
    options = parser.parse_args(arguments)
    if options.trainpref is None and None in (options.source, options.target):
        parser.error("give --source and --target, or --trainpref")
    with one_sentence():
        make(options)


if __name__ == "__main__":
    main()
