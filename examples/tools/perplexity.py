"""The perplexity of a language model per word, whatever its subwords, from what fairseq-eval-lm logs.

perplexity.py --text text/test.en --data data-bin --json perplexity.json blocks=blocks.log window=window.log

A log is that of ``fairseq-eval-lm --output-word-probs``, which has the log-probability of every
subword. The perplexity per word is

    exp(nats of all subwords, the end of each line among them / (words + lines)),

where a word is what stands between spaces in the text, before it was cut into subwords, and each
line has one end, which is predicted as words are. So models with different subwords, or none, can
be compared, as long as the words are cut alike. Prints a table.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import compress
from pathlib import Path

from batches import sizes
from messages import UsageError, one_sentence

from fairseq_entmax.files import write_together

# A line of the log: the number of a block, then its subwords, with tabs between them
BLOCK = re.compile(r"fairseq_cli\.eval_lm(?: \| |:)[0-9]+ (?=\S+ \[)(.*\])")
UNKNOWN = "<unk>"
OF_SUBWORDS = ("subword ppl", "subwords")  # of a text whose words are not cut, they say nothing new
COLUMNS = ("evaluation", "word ppl", "subword ppl", "bits/character", "words", "lines", "subwords")


@dataclass(frozen=True)
class Text:
    """A text, in what its perplexity is counted.

    Attributes:
        words: what stands between spaces.
        lines: of which each has an end.
        characters: those of the lines and one for the end of each.
    """

    words: int
    lines: int
    characters: int


def unit(subwords: int, text: Text) -> str:
    """What fairseq predicts: words where none is cut, else subwords.

    Args:
        subwords: of the text, with the ends of its lines.
    """
    return "words" if subwords == text.words + text.lines else "subwords"


def count(lines: Iterable[str]) -> Text:
    """Count a text.

    Args:
        lines: without their ends.
    """
    words = number = characters = 0
    for line in lines:
        words += len(line.split())
        number += 1
        characters += len(line) + 1
    return Text(words, number, characters)


def log_probs(log: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Yield the subwords of a log and the natural logarithms of their probabilities."""
    for line in log:
        found = BLOCK.search(line)
        for item in found[1].split("\t") if found else ():
            subword, _, score = item.rpartition(" [")
            yield subword, float(score.removesuffix("]"))


@dataclass(frozen=True)
class Perplexity:
    """What a model is worth on a text.

    Attributes:
        word_perplexity: exp(nats / (words + lines)).
        subword_perplexity: exp(nats / subwords).
        bits_per_character: nats / ln 2 / characters.
        nats: of all subwords, the ends of lines among them.
        subwords: with the ends of lines.
        unknown: subwords that stand for any text, <unk>. Where there are some, what they stand
            for is not paid for, and the perplexity is of the text with <unk> in it.
        words: of the text.
        lines: of the text.
    """

    word_perplexity: float
    subword_perplexity: float
    bits_per_character: float
    nats: float
    subwords: int
    unknown: int
    words: int
    lines: int


def measure(
    scores: Iterable[tuple[str, float]], text: Text, subwords: int, name: str
) -> Perplexity:
    """Measure a model by the log-probabilities of all subwords of a text.

    Args:
        scores: subwords and the natural logarithms of their probabilities.
        text: as it was before it was cut.
        subwords: of the text, with the ends of its lines.
        name: of the log, for a message.

    Raises:
        ValueError: these are not all subwords, or one has no probability.
    """
    nats, found, unknown = 0.0, 0, 0
    for subword, score in scores:
        nats -= score
        found += 1
        unknown += subword == UNKNOWN
    units = unit(subwords, text)
    if found != subwords:
        raise ValueError(
            f"{name} has the probabilities of {found} of the {subwords} {units}: fairseq-eval-lm "
            f"left out blocks that are longer than the model's --max-target-positions, or {units} "
            "of probability 0, with which the perplexity is infinite; its messages are in that file"
        )
    if not math.isfinite(nats):
        raise ValueError(
            f"{name} has a probability that is 0 or no number: no perplexity is finite"
        )
    return Perplexity(
        word_perplexity=math.exp(nats / (text.words + text.lines)),
        subword_perplexity=math.exp(nats / subwords),
        bits_per_character=nats / math.log(2) / text.characters,
        nats=nats,
        subwords=subwords,
        unknown=unknown,
        words=text.words,
        lines=text.lines,
    )


def table(measured: dict[str, Perplexity], units: str = "subwords") -> list[list[str]]:
    """The rows of a table, the names of its columns first.

    Args:
        units: as `unit` says; of words, there are no columns of subwords.
    """
    rows = [
        list(COLUMNS),
        *(
            [
                name,
                f"{found.word_perplexity:.2f}",
                f"{found.subword_perplexity:.2f}",
                f"{found.bits_per_character:.4f}",
                *(f"{number}" for number in (found.words, found.lines, found.subwords)),
            ]
            for name, found in measured.items()
        ),
    ]
    shown = [units == "subwords" or name not in OF_SUBWORDS for name in COLUMNS]
    return [list(compress(row, shown)) for row in rows]


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Rows as lines with columns of one width, the first to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "".join(
        f"{row[0]:<{widths[0]}}"
        + "".join(f"  {cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
        + "\n"
        for row in rows
    )


def lines_of(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 text without their ends, split at "\\n" alone."""
    with path.open(encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.removesuffix("\n")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True, help="the test text, before it was cut")
    parser.add_argument("--data", type=Path, required=True, help="folder of the binarised data")
    parser.add_argument("--json", type=Path, required=True, help="file to write all numbers to")
    parser.add_argument("logs", nargs="+", metavar="NAME=LOG", help="of fairseq-eval-lm")
    options = parser.parse_args(arguments)
    with one_sentence():
        text = count(lines_of(options.text))
        subwords = int(sizes(options.data / "test.idx").sum())
        measured = {}
        for given in options.logs:
            name, mark, log = given.partition("=")
            if not mark:
                raise UsageError(f"the log '{given}' has no name: write NAME=LOG")
            measured[name] = measure(log_probs(lines_of(Path(log))), text, subwords, log)
        document = {name: asdict(found) for name, found in measured.items()}
        write_together({options.json: f"{json.dumps(document, indent=2)}\n".encode()})
        units = unit(subwords, text)
        print(aligned(table(measured, units)), end="")
        unknown = next(iter(measured.values())).unknown
        if unknown:
            print(f"{unknown} of the {units} are {UNKNOWN}, as the text has them or instead of it")


if __name__ == "__main__":
    main()
