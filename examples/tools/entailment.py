"""Read pairs of premise and hypothesis, and their labels, from the archive of SNLI.

entailment.py snli_1.0.zip text

writes {train,valid,test}.{input0,input1,label,group} into the folder: the premise, the hypothesis,
the label, and the photograph that the premise describes. The recipe's README.md says what is left out.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from archives import unpack
from messages import one_sentence, say, text_files, write_line

SPLITS = {"train": "train", "valid": "dev", "test": "test"}  # the names in the archive
MEMBER = "snli_1.0/snli_1.0_{}.jsonl"
COLUMNS = ("input0", "input1", "label", "group")
NO_LABEL = "-"


def words_of(parse: str) -> str:
    """The lowercased leaves of a binary parse, such as ``( ( A man ) sleeps )``."""
    return " ".join(word for word in parse.split() if word not in "()").lower()


def row_of(line: bytes) -> tuple[str, ...]:
    """The `COLUMNS` of a pair."""
    row = json.loads(line)
    sentences = (words_of(row[f"sentence{n}_binary_parse"]) for n in (1, 2))
    # captionID is photograph#caption
    return *sentences, row["gold_label"], row["captionID"].partition("#")[0] or "-"


def write_splits(archive: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        members = [MEMBER.format(name) for name in SPLITS.values()]
        paths = unpack(archive, members, Path(place))
        for split, path in zip(SPLITS, paths, strict=True):
            with text_files(folder / split, COLUMNS) as outs, path.open("rb") as lines:
                rows = [row for row in map(row_of, lines) if row[2] != NO_LABEL]
                for row in rows:
                    write_line(outs, row)
            say(f"{split}: {len(rows):,} pairs with a label")


if __name__ == "__main__":
    with one_sentence():
        write_splits(*map(Path, sys.argv[1:]))
