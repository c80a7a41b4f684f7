"""Read first sentences and headlines from the archive of Rush, Chopra, Weston (2015).

gigaword.py text sent-summary.tar.gz

The archive is that of github.com/harvardnlp/sent-summary; the recipe's README.md says what it has.
"""

from __future__ import annotations

import gzip
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from archives import DAMAGED, unpack
from messages import one_sentence, text_files, write_line

ROOT = "sumdata"
UNKNOWN = "UNK"
DIGIT = re.compile(r"[0-9]")
# The files of each split: sources, then the summaries of one or more people. The first summary
# is the target; all of them are references.
PARTS = {
    "train": ("train/train.article.txt.gz", "train/train.title.txt.gz"),
    "valid": ("train/valid.article.filter.txt", "train/valid.title.filter.txt"),
    "test": ("Giga/input.txt", "Giga/task1_ref0.txt"),
    "duc2004": ("DUC2004/input.txt", *(f"DUC2004/task1_ref{number}.txt" for number in range(4))),
}
TESTS = ("test", "duc2004")
VALID = 8000  # of 189,651 pairs


def normalise(text: str) -> str:
    """Lowercase, with ``#`` for each digit, ``UNK`` for rare words, and single spaces."""
    words = text.split()
    return " ".join(
        UNKNOWN if word in (UNKNOWN, "<unk>") else DIGIT.sub("#", word.lower()) for word in words
    )


def every(number: int, wanted: int) -> set[int]:
    """`wanted` of the numbers below `number`, evenly spaced; all of them if there are fewer."""
    if wanted >= number:
        return set(range(number))
    return {index * number // wanted for index in range(wanted)}


def rows(split: str, paths: list[Path]) -> Iterator[list[str]]:
    names = " and ".join(PARTS[split])
    with ExitStack() as stack:
        files = [
            stack.enter_context((gzip.open if name.endswith(".gz") else open)(path, "rb"))
            for name, path in zip(PARTS[split], paths, strict=True)
        ]
        try:
            for lines in zip(*files, strict=True):
                yield [line.decode("utf-8").strip() for line in lines]
        except (*DAMAGED, ValueError) as error:
            raise ValueError(f"{names} cannot be read together: {error}") from error


def write_split(split: str, paths: list[Path], folder: Path, chosen: set[int] | None) -> str:
    """Write a split. Test sets get references; elsewhere, pairs with an empty side are left out."""
    written = left_out = 0
    names = ["article", "summary"]
    if split in TESTS:
        names += [f"reference{number}" for number in range(len(paths) - 1)]
    with text_files(folder / split, names) as outs:
        for number, texts in enumerate(rows(split, paths)):
            if chosen is not None and number not in chosen:
                continue
            pair = [normalise(text) for text in texts[:2]]
            if split not in TESTS and not all(pair):
                left_out += 1
                continue
            write_line(outs, [*pair, *texts[1:]][: len(outs)])
            written += 1
    rest = f"; left out {left_out} with an empty side" if left_out else ""
    return f"{split}: {written} pairs{rest}"


def write_splits(source: Path, folder: Path, valid: int = VALID) -> Iterator[str]:
    """Write every split, with `valid` evenly spaced validation pairs; yield a line on each."""
    with tempfile.TemporaryDirectory(dir=folder) as copies:
        names = [name for some in PARTS.values() for name in some]
        # Some archives have lowercase names
        members = ["|".join(dict.fromkeys(f"{ROOT}/{x}" for x in (n, n.lower()))) for n in names]
        paths = iter(unpack(source, members, Path(copies)))
        for split, some in PARTS.items():
            files, chosen = [next(paths) for _ in some], None
            if split == "valid":
                chosen = every(sum(1 for _ in rows(split, files)), valid)
            yield write_split(split, files, folder, chosen)


if __name__ == "__main__":
    with one_sentence():
        for line in write_splits(Path(sys.argv[2]), Path(sys.argv[1])):
            print(line)
