"""Make training, validation and test text from your own files.

corpus_splits.py text --languages de en --source corpus.de --target corpus.en
corpus_splits.py text --languages de en --trainpref train --validpref valid --testpref test

writes {train,valid,test}.{de,en} into the folder, in the order of the files; with - in place of the
folder, prints a checksum of the files. A split without files is drawn from the training text by a
seeded shuffle, from pairs whose source and target both occur once in it. Training pairs that share
a side with a given validation or test pair are left out, and so are validation pairs that share one
with the test: no text is in two splits. Texts are compared without regard to case and spacing.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
from collections import Counter
from pathlib import Path

from messages import UsageError, one_sentence, say, text_files, write_line

Pair = tuple[str, str]
SPLITS = ("train", "valid", "test")
EITHER = ("source", "trainpref"), ("valid", "validpref"), ("test", "testpref")
# Limits for training and validation pairs. A text of so many characters fits into fairseq's models,
# which take 1,024 subwords.
MOST_WORDS, MOST_CHARACTERS, MOST_RATIO = 200, 1000, 10
# By default, this many pairs are drawn, or one in LEAST_SHARE of a small corpus
MOST_DRAWN, LEAST_SHARE = 1000, 20


def files_of(options: argparse.Namespace) -> dict[str, tuple[Path, Path]]:
    """The source and target files of each split that has files."""
    source, target = options.languages
    files = {}
    for pair in EITHER:
        if all(getattr(options, name) for name in pair):
            raise UsageError(f"options --{' and --'.join(pair)} exclude each other: leave one out")
    for split in SPLITS:
        if prefix := getattr(options, f"{split}pref"):
            files[split] = (Path(f"{prefix}.{source}"), Path(f"{prefix}.{target}"))
    if options.source and options.target:
        files["train"] = (options.source, options.target)
    if "train" not in files:
        raise UsageError(
            "no training text: name it with --source FILE --target FILE, or --trainpref PREFIX"
        )
    return files


def read_lines(path: Path, lower: bool) -> list[str]:
    """The lines of a UTF-8 text, with single spaces and no byte order mark, split at "\\n" only."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        number = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path} is not UTF-8, in line {number:,}: unpack it if it is an archive, or convert it with "
            "iconv, and give that file"
        ) from error
    lines = text.removesuffix("\n").split("\n")
    return [" ".join((line.lower() if lower else line).split()) for line in lines]


def fault_of(pair: Pair) -> str | None:
    shorter, longer = sorted(map(len, pair))
    if not shorter:
        return "with an empty side"
    if longer > MOST_CHARACTERS or max(len(side.split()) for side in pair) > MOST_WORDS:
        return f"longer than {MOST_WORDS} words or {MOST_CHARACTERS:,} characters"
    if longer > MOST_RATIO * shorter:
        return f"with one side over {MOST_RATIO} times as long as the other"
    return None


def read_pairs(split: str, files: tuple[Path, Path], lower: bool) -> list[Pair]:
    """The pairs of two files: all pairs of a test set, otherwise those without a fault."""
    if os.path.samefile(*files):
        raise UsageError(f"source and target are the same file {files[0]}: give two files")
    source, target = (read_lines(path, lower) for path in files)
    if len(source) != len(target):
        raise UsageError(
            f"{files[0]} has {len(source):,} lines and {files[1]} {len(target):,}: line N of one has to "
            "be the translation of line N of the other"
        )
    pairs = list(zip(source, target, strict=True))
    if split == "test":
        if max(map(len, source + target)) > MOST_CHARACTERS:
            raise UsageError(
                f"{files[0]} or {files[1]} has a line of more than {MOST_CHARACTERS:,} characters: shorten it"
            )
        return pairs
    faults = list(map(fault_of, pairs))
    for fault, number in Counter(filter(None, faults)).items():
        say(f"{split}: left out {number:,} of {len(pairs):,} pairs, {fault}")
    return [pair for pair, fault in zip(pairs, faults, strict=True) if not fault]


def sides(pairs: list[Pair]) -> Counter[tuple[int, str]]:
    """How often each text occurs as a source (0), and as a target (1)."""
    return Counter((side, text.casefold()) for pair in pairs for side, text in enumerate(pair))


def without(pairs: list[Pair], others: list[Pair]) -> list[Pair]:
    """The pairs that share no side with `others`."""
    taken = sides(others)
    return [pair for pair in pairs if not any(one in taken for one in sides([pair]))]


def draw(pairs: list[Pair], wanted: dict[str, int]) -> dict[str, list[Pair]]:
    """Draw the wanted number of pairs for each split, the rest for training, all in their order."""
    counts = sides(pairs)
    drawable = [n for n, pair in enumerate(pairs) if all(counts[one] == 1 for one in sides([pair]))]
    if len(drawable) <= sum(wanted.values()) or not all(wanted.values()):
        needs = " and ".join(f"{number:,} for {split}" for split, number in wanted.items())
        raise UsageError(
            f"of {len(pairs):,} pairs, {len(drawable):,} can be drawn, as their source and target "
            f"occur once, and {needs} are wanted: give other numbers with --valid and --test, or "
            "files with --validpref and --testpref"
        )
    random.Random(1).shuffle(drawable)
    place = {}
    for split, number in wanted.items():
        place.update({drawable.pop(0): split for _ in range(number)})
        say(f"{split}: drawn from the training text, {number:,} pairs")
    splits: dict[str, list[Pair]] = {split: [] for split in ("train", *wanted)}
    for number, pair in enumerate(pairs):
        splits[place.get(number, "train")].append(pair)
    return splits


def make(options: argparse.Namespace) -> dict[str, list[Pair]]:
    given = files_of(options)
    splits = {split: read_pairs(split, files, options.lower) for split, files in given.items()}
    for split, others in (("valid", ["test"]), ("train", ["test", "valid"])):
        held = [pair for other in others for pair in splits.get(other, [])]
        if held and split in splits:
            before, splits[split] = splits[split], without(splits[split], held)
            number = len(before) - len(splits[split])
            say(f"{split}: left out {number:,} pairs that share a side with {' or '.join(others)}")
    share = min(MOST_DRAWN, len(splits["train"]) // LEAST_SHARE)
    requested = {"valid": options.valid or share, "test": options.test or share}
    wanted = {split: number for split, number in requested.items() if split not in splits}
    return {**splits, **draw(splits["train"], wanted)} if wanted else splits


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="folder to write to, or -")
    parser.add_argument("--languages", nargs=2, required=True, help="suffixes of the file names")
    parser.add_argument("--source", type=Path, help="training text")
    parser.add_argument("--target", type=Path, help="its translation")
    for split in SPLITS:
        parser.add_argument(f"--{split}pref", help=f"{split} files, without .LANGUAGE")
    for split in SPLITS[1:]:
        parser.add_argument(f"--{split}", type=int, help="pairs to draw if there are no files")
    parser.add_argument("--lower", action="store_true", help="lowercase all text")
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.folder == "-":
            print(options.languages, options.lower, options.valid, options.test)
            for split, paths in sorted(files_of(options).items()):
                print(split, *(hashlib.sha256(path.read_bytes()).hexdigest() for path in paths))
            return
        for split, pairs in make(options).items():
            with text_files(f"{options.folder}/{split}", options.languages) as outs:
                for pair in pairs:
                    write_line(outs, pair)


if __name__ == "__main__":
    main()
