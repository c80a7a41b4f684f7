"""Pairs of premise and hypothesis out of the archive of SNLI, with the label they were given.

entailment.py snli_1.0.zip text --expect 549367/9842/9824

writes {train,valid,test}.{input0,input1,label,group} into the folder: the premise, the hypothesis,
the label, and the photograph that the premise describes.

The words are the leaves of the parses that the corpus comes with (sentence1_binary_parse and
sentence2_binary_parse), cut by the Stanford parser, here in small letters. Pairs with the label -
are left out: their annotators did not agree, and the corpus says not to score them. A split is read
from the archive's .jsonl, or from its .txt where it has no .jsonl; both hold the same pairs.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from archives import unpack
from messages import UsageError, one_sentence

SPLITS = {"train": "train", "valid": "dev", "test": "test"}  # to the names in the archive
MEMBER = "snli_1.0/snli_1.0_{split}.{form}"
FORMS = ("jsonl", "txt")
LABELS = ("entailment", "neutral", "contradiction")
NO_LABEL = "-"
COLUMNS = (
    *("gold_label", "sentence1_binary_parse", "sentence2_binary_parse"),
    "captionID",
)


class Pair(NamedTuple):
    """A premise, a hypothesis, one of `LABELS`, and the photograph, such as ``3416050480.jpg``."""

    premise: str
    hypothesis: str
    label: str
    group: str


def words_of(parse: str) -> str:
    """The leaves of a binary parse, such as ``( ( A man ) sleeps )``, in small letters.

    A round bracket of the sentence itself is ``-lrb-`` or ``-rrb-``, as in the Penn Treebank.
    """
    return " ".join(word for word in parse.split() if word not in "()").lower()


def rows_of(text: io.TextIOBase, form: str) -> Iterator[dict[str, str]]:
    """Yield the `COLUMNS` of each line of a split.

    Args:
        form: one of `FORMS`.

    Raises:
        ValueError: a line does not have them; the message has its number.
    """
    lines = (
        text if form == "jsonl" else csv.DictReader(text, delimiter="\t", quoting=csv.QUOTE_NONE)
    )
    for number, line in enumerate(lines, start=1 if form == "jsonl" else 2):
        try:
            row: Any = json.loads(line) if isinstance(line, str) else line
            yield {name: row[name].strip() for name in COLUMNS}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"line {number} is none of SNLI ({error!r})") from error


def pairs_of(text: io.TextIOBase, form: str) -> Iterator[Pair]:
    """Yield the pairs of a split that have a label.

    Raises:
        ValueError: a line is none of the corpus, or its label is unknown.
    """
    for row in rows_of(text, form):
        label = row["gold_label"]
        if label == NO_LABEL:
            continue
        if label not in LABELS:
            raise ValueError(f"the label '{label}' is none of {', '.join(LABELS)}, {NO_LABEL}")
        premise, hypothesis = (words_of(row[f"sentence{number}_binary_parse"]) for number in (1, 2))
        # captionID is photograph#caption
        yield Pair(premise, hypothesis, label, row["captionID"].partition("#")[0] or "-")


def form_in(archive: Path) -> str:
    """The first of `FORMS` that the archive has.

    Raises:
        ValueError: it has none, or is no zip.
    """
    try:
        with zipfile.ZipFile(archive) as zipped:
            names = set(zipped.namelist())
    except zipfile.BadZipFile as error:
        raise ValueError(f"{archive} is cut short or damaged: {error}") from error
    for form in FORMS:
        if MEMBER.format(split="train", form=form) in names:
            return form
    raise ValueError(f"{archive} has no {MEMBER.format(split='train', form='jsonl')}")


def write_split(text: io.TextIOBase, form: str, prefix: Path) -> int:
    """Write `prefix`.{input0,input1,label,group}; return the number of pairs."""
    number = 0
    sides = dict(zip(("input0", "input1", "label", "group"), Pair._fields, strict=True))
    files = {
        field: open(f"{prefix}.{suffix}", "w", encoding="utf-8", newline="\n")  # noqa: SIM115
        for suffix, field in sides.items()
    }
    try:
        for number, pair in enumerate(pairs_of(text, form), start=1):  # noqa: B007
            for field, file in files.items():
                file.write(f"{getattr(pair, field)}\n")
    finally:
        for file in files.values():
            file.close()
    return number


def write_splits(archive: Path, folder: Path) -> dict[str, int]:
    """Write all splits of an archive; return how many pairs each has.

    Raises:
        ValueError: the archive is damaged, or is another.
    """
    form = form_in(archive)
    folder.mkdir(parents=True, exist_ok=True)
    members = [MEMBER.format(split=name, form=form) for name in SPLITS.values()]
    written = {}
    with tempfile.TemporaryDirectory(dir=folder) as place:
        for split, member, path in zip(
            SPLITS, members, unpack(archive, members, Path(place)), strict=True
        ):
            with path.open(encoding="utf-8", newline="\n") as text:
                try:
                    written[split] = write_split(text, form, folder / split)
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
        expected = options.expect.split("/")
        if len(expected) != len(SPLITS) or not all(number.isdecimal() for number in expected):
            raise UsageError(
                f"PAIRS is '{options.expect}': give three numbers, such as 549367/9842/9824"
            )
        written = write_splits(options.archive, options.folder)
        for (split, count), number in zip(written.items(), expected, strict=True):
            if count != int(number):
                raise ValueError(
                    f"{options.archive} has {count} pairs with a label in {split}, {number} are "
                    "expected: it is another version; PAIRS says other numbers"
                )


if __name__ == "__main__":
    main()
