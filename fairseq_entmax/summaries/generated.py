"""What ``fairseq-generate`` printed, by sentence number.

Its lines are, with tabs between the parts and *n* the sentence's number in the data set from 0::

    S-n  source         T-n  target
    H-n  score  text    (a hypothesis, in the words of the dictionary)
    D-n  score  text    (the same after --bpe and --tokenizer)

and others, such as P-n and what it logs. It prints batches of sentences of like lengths, so the
order of the lines is not that of the data set. With ``--nbest``, the hypotheses of a sentence
follow each other, the best first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_LINE = re.compile(r"([STHD])-(\d{1,18})\t(.*)", re.DOTALL)
_SHOWN = 5


class Line(NamedTuple):
    """A line of a sentence.

    Attributes:
        kind: ``S``, ``T``, ``H`` or ``D``.
        number: of the sentence.
        head: what stands before the text: ``H-0\\t-0.5\\t``.
        text: without the line's end.
    """

    kind: str
    number: int
    head: str
    text: str


@dataclass
class Generated:
    """The sentences of a file.

    Attributes:
        path: the file.
        sources: number to the text of ``S-``; empty where the file has none.
        hypotheses: number to the best hypothesis, of ``D-`` where the file has it, else ``H-``.
    """

    path: str
    sources: dict[int, str] = field(default_factory=dict)
    hypotheses: dict[int, str] = field(default_factory=dict)

    def in_order(self, lines: int, option: str, name: str) -> list[str]:
        """The best hypotheses, in the order of a file with a line for each sentence.

        Args:
            lines: how many it has.
            option: what named it, for errors.
            name: its name.

        Raises:
            ValueError: a sentence has no line, or a line no sentence.
        """
        beyond = [number for number in self.hypotheses if number >= lines]
        if beyond:
            raise ValueError(
                f"{option} {name} has {lines} lines, and {self.path} has sentence {max(beyond)}, "
                f"counted from 0: give the text that {self.path} was generated from"
            )
        missing = [number for number in range(lines) if number not in self.hypotheses]
        if missing:
            raise ValueError(
                f"{self.path} has no hypothesis of {len(missing)} of the {lines} sentences of "
                f"{option} {name} ({_some(missing)}, counted from 0): give the text that it was "
                f"generated from, or generate all of it, with --required-batch-size-multiple 1, as "
                f"fairseq's default of 8 leaves out up to 7 sentences"
            )
        return [self.hypotheses[number] for number in range(lines)]


def read_generated(path: str) -> Generated:
    """Read a file of fairseq-generate's output.

    Args:
        path: what was printed, or ``generate-SUBSET.txt`` of ``--results-path``.

    Raises:
        ValueError: it is no such file, is damaged, or has a sentence twice; names the line.
        OSError: it cannot be read.
    """
    generated = Generated(path)
    found: dict[str, dict[int, str]] = {kind: {} for kind in "STHD"}
    last: dict[str, int] = {}
    for place, line in enumerate(read_lines(path, "the output of fairseq-generate"), start=1):
        parsed = parse_line(line)
        if parsed is None:
            continue
        kind, number, _, text = parsed
        texts = found[kind]
        # Hypotheses of --nbest follow each other
        if number in texts and (kind in "ST" or last[kind] != number):
            raise ValueError(
                f"line {place} of {path} has {kind}-{number} once more: give the output of one "
                f"run of fairseq-generate, on one subset"
            )
        texts.setdefault(number, text)
        last[kind] = number
    generated.sources = found["S"]
    generated.hypotheses = found["D"] or found["H"]
    if not generated.hypotheses:
        raise ValueError(
            f"{path} has no line H-0 or D-0, so it is no output of fairseq-generate: give what it "
            f"printed (without --quiet), or a text with a summary a line where --text is an option"
        )
    if found["D"] and found["H"] and found["D"].keys() != found["H"].keys():
        alone = sorted(found["D"].keys() ^ found["H"].keys())
        raise ValueError(
            f"{path} has only one of H-{alone[0]} and D-{alone[0]}: it was cut short, so generate "
            f"anew"
        )
    return generated


def parse_line(line: str) -> Line | None:
    """One line; None where it is none of S, T, H and D.

    Args:
        line: without its end.
    """
    match = _LINE.fullmatch(line)
    if match is None:
        return None
    kind, number, rest = match.groups()
    head = line[: match.start(3)]
    if kind in "HD":
        score, tab, text = rest.partition("\t")
        try:
            float(score)
        except ValueError:
            return None  # a sentence that happens to begin so, in what was logged
        return Line(kind, int(number), f"{head}{score}\t", text if tab else "")
    return Line(kind, int(number), head, rest)


def read_lines(path: str, what: str) -> Iterator[str]:
    """The lines of a text in UTF-8, without their ends, split as fairseq splits them.

    Args:
        path: the file.
        what: what it should be, for errors.

    Raises:
        ValueError: it is no text in UTF-8.
        OSError: it cannot be read.
    """
    if not path:
        raise ValueError(f"a file got '' for its name, which should be {what}: give a file")
    if Path(path).is_dir():
        raise ValueError(f"{path} should be {what}, but is a folder: give a file")
    if not Path(path).exists():
        raise FileNotFoundError(f"there is no file {path}, which should be {what}")
    with open(path, encoding="utf-8") as file:
        try:
            for line in file:
                yield line.removesuffix("\n")
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} should be {what}, but is no text in UTF-8 ({error.reason} at byte "
                f"{error.start} of a part of it): convert it, or give another file"
            ) from None


def _some(numbers: Iterable[int]) -> str:
    shown = list(numbers)
    text = ", ".join(map(str, shown[:_SHOWN]))
    return text if len(shown) <= _SHOWN else f"{text}, …"
