"""The output of ``fairseq-generate``, by sentence number.

Its lines have tabs between the parts, and *n* is the sentence's number in the data set, from 0::

    S-n  source         T-n  target
    H-n  score  text    (a hypothesis, in the words of the dictionary)
    D-n  score  text    (the same after --bpe and --tokenizer)

There are other lines, such as P-n and logs. Batches have sentences of similar length, so the
lines are not in the order of the data set. With ``--nbest``, the hypotheses of a sentence
follow each other, the best first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE = re.compile(r"(([ST])-(\d{1,18})\t|([HD])-(\d{1,18})\t[-+.\w]+\t)(.*)")


class Line(NamedTuple):
    """A line of a sentence, of kind S, T, H or D; ``head`` is what stands before its text."""

    kind: str
    number: int
    head: str
    text: str


def parse_line(line: str) -> Line | None:
    """Parse one line, without its newline; None if it is not of kind S, T, H or D."""
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    return Line(match[2] or match[4], int(match[3] or match[5]), match[1], match[6])


def hypotheses(path: str, documents: int) -> list[str]:
    """The best hypotheses in a file of fairseq-generate's output, in the order of the data set.

    They are those of ``D-`` if the file has any, else those of ``H-``.
    """
    found: dict[str, dict[int, str]] = {"H": {}, "D": {}}
    last: dict[str, int] = {}
    for place, line in enumerate(read_lines(path), start=1):
        parsed = parse_line(line)
        if parsed is None or parsed.kind not in found:
            continue
        kind, number, _, text = parsed
        # With --nbest, the hypotheses of a sentence follow each other
        if number in found[kind] and last[kind] != number:
            raise ValueError(
                f"line {place} of {path} repeats {kind}-{number}: give the output of one "
                f"run of fairseq-generate, on one subset"
            )
        found[kind].setdefault(number, text)
        last[kind] = number
    texts = found["D"] or found["H"]
    if not texts:
        raise ValueError(
            f"{path} has no line H-0 or D-0, so it is not output of fairseq-generate: give what it "
            f"printed (without --quiet), or, with --text, one summary per line"
        )
    if wrong := sorted(texts.keys() ^ set(range(documents))):
        raise ValueError(
            f"{path} has {len(texts)} sentences for {documents} references, and sentence "
            f"{wrong[0]}, counted from 0, is in only one of the two: give the references of all that "
            f"was generated, or generate all of it, with --required-batch-size-multiple 1: "
            f"fairseq's default of 8 leaves out up to 7 sentences"
        )
    return [texts[number] for number in range(documents)]


def read_lines(path: str) -> Iterator[str]:
    """The lines of a UTF-8 text, without newlines, split as fairseq splits them."""
    with open(path, encoding="utf-8") as file:
        try:
            for line in file:
                yield line.removesuffix("\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not a UTF-8 text ({error.reason})") from None
