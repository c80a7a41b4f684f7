"""Pairs of premise and hypothesis out of the archive of SNLI, with the label they were given.

entailment.py snli_1.0.zip text --expect 549367/9842/9824

writes {train,valid,test}.{input0,input1,label,group} into the folder: the premise, the hypothesis,
the label, and the photograph that the premise describes.

The words are the leaves of the parses that the corpus comes with (sentence1_binary_parse and
sentence2_binary_parse), cut by the Stanford parser, here in small letters. Pairs with the label -
are left out: their annotators did not agree, and the corpus says not to score them.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from archives import unpack
from messages import numbers_of_pairs, one_sentence, text_files, write_line

SPLITS = {"train": "train", "valid": "dev", "test": "test"}  # to the names in the archive
MEMBER = "snli_1.0/snli_1.0_{}.jsonl"
COLUMNS = ("input0", "input1", "label", "group")
LABELS = ("entailment", "neutral", "contradiction")
NO_LABEL = "-"


def words_of(parse: str) -> str:
    """The leaves of a binary parse, such as ``( ( A man ) sleeps )``, in small letters."""
    return " ".join(word for word in parse.split() if word not in "()").lower()


def rows_of(lines: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Yield the `COLUMNS` of the pairs of a split that have a label."""
    for number, line in enumerate(lines, start=1):
        try:
            row = json.loads(line)
            sentences = (words_of(row[f"sentence{n}_binary_parse"].strip()) for n in (1, 2))
            # captionID is photograph#caption
            label, group = row["gold_label"].strip(), row["captionID"].strip().partition("#")[0]
            found = (*sentences, label, group or "-")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"line {number} is none of SNLI ({error!r})") from error
        if label != NO_LABEL:
            if label not in LABELS:
                raise ValueError(f"the label '{label}' is none of {', '.join(LABELS)}, {NO_LABEL}")
            yield found


def write_splits(archive: Path, folder: Path) -> dict[str, int]:
    folder.mkdir(parents=True, exist_ok=True)
    members = [MEMBER.format(name) for name in SPLITS.values()]
    written = dict.fromkeys(SPLITS, 0)
    with tempfile.TemporaryDirectory(dir=folder) as place:
        paths = unpack(archive, members, Path(place))
        for split, member, path in zip(SPLITS, members, paths, strict=True):
            with text_files(folder / split, COLUMNS) as outs:
                try:
                    for row in rows_of(path.open(encoding="utf-8", newline="\n")):
                        written[split] += 1
                        write_line(outs, row)
                except ValueError as error:
                    raise ValueError(f"{archive}, {member}: {error}") from error
    return written


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path, help="folder to write to")
    parser.add_argument("--expect", required=True, help="pairs of train/valid/test")
    options = parser.parse_args(arguments)
    with one_sentence():
        expected = numbers_of_pairs(options.expect, len(SPLITS))
        written = write_splits(options.archive, options.folder)
        for (split, count), number in zip(written.items(), expected, strict=True):
            if count != number:
                raise ValueError(
                    f"{options.archive} has {count} pairs with a label in {split}, {number} are "
                    "expected: it is another version; PAIRS says other numbers"
                )


if __name__ == "__main__":
    main()
