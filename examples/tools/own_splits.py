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
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy
from messages import UsageError, one_sentence, say, text_files, write_line
from parallel_text import Limits, Texts, pairs_of, require_texts

DRAWN = ("valid", "test")
MOST_DRAWN = 1000  # pairs by default, or of a small corpus
LEAST_SHARE = 20  # one pair of so many
FEWEST = 40  # pairs from which some can be drawn


def key(text: str) -> int:
    """Equal for texts that count as the same; 64 bits."""
    folded = " ".join(text.split()).casefold().encode()
    return int.from_bytes(blake2b(folded, digest_size=8).digest(), "little")


class Keys(NamedTuple):
    """Of each pair whether it is kept, and 64 bits for each side's text; 0 of others."""

    kept: numpy.ndarray
    sides: numpy.ndarray

    def shared_with(self, others: Sequence[Keys]) -> numpy.ndarray:
        """The pairs with the source or the target of a kept pair of others; shape (pairs,)."""
        shared = numpy.zeros(len(self.kept), dtype=bool)
        for other in others:
            for side in range(2):
                shared |= numpy.isin(self.sides[:, side], other.sides[other.kept, side])
        return shared & self.kept

    def of_their_own(self) -> numpy.ndarray:
        """The kept pairs whose source and whose target occur once; shape (pairs,)."""
        own = self.kept.copy()
        for side in range(2):
            found, counts = numpy.unique(self.sides[self.kept, side], return_counts=True)
            own &= numpy.isin(self.sides[:, side], found[counts == 1])
        return own


def read_keys(texts: Texts, limits: Limits, *, lower: bool, whole: bool = False) -> Keys:
    """Read two files and say what was found; every pair is kept of the `whole`, as of a test."""
    pairs = require_texts(texts)
    kept, sides = numpy.zeros(pairs, dtype=bool), numpy.zeros((pairs, 2), dtype=numpy.uint64)
    why: Counter[str] = Counter()
    for number, pair in enumerate(pairs_of(texts, lower=lower)):
        reason = None if whole else limits.broken_by(pair)
        if whole and max(map(len, pair)) > limits.characters:
            side = len(pair[1]) > limits.characters
            raise UsageError(
                f"line {number + 1:,} of {texts[side]} has {len(pair[side]):,} characters, and of a "
                f"test nothing is left out: cut the line, or give --max-characters more than "
                f"{limits.characters}"
            )
        if reason:
            why[reason] += 1
            continue
        kept[number] = True
        sides[number] = [key(side) for side in pair]
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in why.items())
    left_out = f"left out {why.total():,}: {reasons}" if why else "none left out"
    say(f"{texts.source} and {texts.target}: {pairs:,} pairs, {left_out}")
    return Keys(kept, sides)


def draw(keys: Keys, wanted: dict[str, int], seed: int, taken: numpy.ndarray) -> numpy.ndarray:
    """The split of each training pair: an index into ``(train, *wanted)``; shape (pairs,).

    Pairs that are `taken` are in given files too, and cannot be drawn.
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
    options: argparse.Namespace,
) -> None:  # fmt: skip
    """Write the pairs that are kept to the files of their splits, with line numbers behind the first."""
    with ExitStack() as stack:
        files = []
        for name in names:
            ends = [*options.languages, *(["line"] if name != names[0] else [])]
            files.append(stack.enter_context(text_files(options.folder / name, ends)))
        for number, pair in enumerate(pairs_of(texts, lower=options.lower)):
            if kept[number]:
                outs = files[split[number]]
                write_line(outs, [*pair, str(number + 1)][: len(outs)])


def given(options: argparse.Namespace, split: str) -> Texts | None:
    prefix = getattr(options, f"{split}pref")
    return Texts(*(Path(f"{prefix}.{x}") for x in options.languages)) if prefix else None


def make(options: argparse.Namespace) -> None:
    limits = Limits(options.max_words, options.max_characters, options.max_ratio)
    lower = options.lower
    texts = given(options, "train") or Texts(options.source, options.target)
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
    pairs = int(kept.sum())
    to_draw = {split: getattr(options, split) for split in DRAWN if split not in own}
    fewest = FEWEST if None in to_draw.values() else 1
    if pairs < fewest:
        more = f", and drawing needs {fewest}: give --valid and --test" if pairs else ""
        raise UsageError(f"{pairs} pairs of {texts.source} and {texts.target} are left{more}")
    share = min(MOST_DRAWN, pairs // LEAST_SHARE)
    wanted = {split: share if number is None else number for split, number in to_draw.items()}
    split = draw(Keys(kept, keys.sides), wanted, options.seed, shared)
    write(texts, kept, split, ("train", *wanted), options)
    for name, files in own.items():
        its = own_keys[name].kept
        if not its.any():
            raise UsageError(f"nothing is left of {files.source} and {files.target}")
        write(files, its, numpy.zeros(len(its), dtype=numpy.int8), (name,), options)
    if wanted:
        drawn = " and ".join(f"{number:,} for {split}" for split, number in wanted.items())
        say(
            f"drawn {drawn} (seed {options.seed}), of pairs whose source and target occur once: a pair "
            "that shares its source or target with another stays in training"
        )
    if lower:
        say("all text is in small letters, that of the test too: scores are of small letters")


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
    with one_sentence():
        make(options)


if __name__ == "__main__":
    main()
