"""A miniature of SNLI's archive in its layout and format, with invented sentences.

To give a model something to learn, a hypothesis repeats the premise's person (entailment), names
another one (contradiction), or adds something to the premise (neutral).
"""

import json
from pathlib import Path
from typing import NamedTuple

from tests.examples import miniatures

TRAIN, DEV, TEST = 120, 18, 24
PEOPLE = ("girl", "boy", "baker", "sailor", "nurse", "farmer")
DOINGS = ("paints a door", "rides a mule", "peels apples", "repairs a kite", "sings")
PLACES = ("at the harbour", "in a barn", "by the river")
LABELS = ("entailment", "neutral", "contradiction")


class Pair(NamedTuple):
    """A pair of sentences without their full stops."""

    premise: str
    hypothesis: str
    label: str
    caption: str


def pair(number: int) -> Pair:
    """The pair with this number; every tenth has no label that its annotators agreed on."""
    label = LABELS[number % 3]
    scene = number // 3
    person, other = PEOPLE[scene % 6], PEOPLE[(scene + 1) % 6]
    doing, place = DOINGS[scene % 5], PLACES[scene % 3]
    hypothesis = {
        "entailment": f"A {person} {doing}",
        "neutral": f"A tall {person} {doing} again",
        "contradiction": f"A {other} {doing}",
    }[label]
    gold = "-" if number % 10 == 9 else label
    return Pair(f"A {person} {doing} {place}", hypothesis, gold, f"{1000 + scene}.jpg#0")


def binary(sentence: str) -> str:
    """A binary parse that branches to the right, with the full stop as a word."""
    words = [*sentence.split(), "."]
    return " ".join(f"( {word}" for word in words[:-1]) + f" {words[-1]}" + " )" * (len(words) - 1)


def row(place: int) -> str:
    """A line of a split's .jsonl."""
    premise, hypothesis, gold, caption = pair(place)
    fields = {"captionID": caption, "gold_label": gold, "pairID": f"{caption}r1{gold[0]}"}
    for number, text in ((1, premise), (2, hypothesis)):
        fields |= {f"sentence{number}": f"{text}.", f"sentence{number}_binary_parse": binary(text)}
    return f"{json.dumps(fields)}\n"


SPLITS = {"train": range(TRAIN), "dev": range(TRAIN, TRAIN + DEV)}
SPLITS["test"] = range(TRAIN + DEV, TRAIN + DEV + TEST)


def write(folder: Path) -> Path:
    """Write the archive to a folder, and return the table of archives with its checksum."""
    folder.mkdir(parents=True, exist_ok=True)
    members = {"snli_1.0/README.txt": b"A miniature\n", "__MACOSX/._snli_1.0": b"\x00\x05"}
    for split, places in SPLITS.items():
        members[f"snli_1.0/snli_1.0_{split}.jsonl"] = "".join(map(row, places)).encode()
    archive = folder / "snli_1.0.zip"
    miniatures.write_zip(archive, members)
    return miniatures.write_table(folder, [archive])
