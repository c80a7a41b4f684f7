"""How long the sentences of binarised data are: lengths.py data-bin es en MOST

Prints three numbers: the training pairs, those with a side of more than MOST tokens, and the tokens
of the longest sentence of the validation set.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy

MAGIC = b"MMIDIDX\x00\x00"  # of fairseq's default format; then version, type, and count
HEADER = struct.Struct("<9sQBQ")


def sizes(path: Path) -> numpy.ndarray:
    """The tokens of each sentence, from the index of a data set.

    Raises:
        ValueError: it is in another of fairseq's formats.
    """
    with path.open("rb") as file:
        magic, _, _, count = HEADER.unpack(file.read(HEADER.size))
        if magic != MAGIC:
            raise ValueError(f"{path} is not in fairseq's format mmap: run prepare.sh again")
        return numpy.fromfile(file, dtype="<i4", count=count)


def longest_sides(folder: Path, split: str, languages: list[str]) -> numpy.ndarray:
    """The tokens of the longer side of each pair."""
    pair = "-".join(languages)
    return numpy.maximum(*(sizes(folder / f"{split}.{pair}.{x}.idx") for x in languages))


def main() -> None:
    folder, *languages, most = sys.argv[1:]
    try:
        train = longest_sides(Path(folder), "train", languages)
        valid = longest_sides(Path(folder), "valid", languages)
    except (OSError, ValueError, struct.error) as error:
        sys.exit(f"{error}")
    print(len(train), int((train > int(most)).sum()), valid.max())


if __name__ == "__main__":
    main()
