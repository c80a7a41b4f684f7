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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from batches import sizes
from messages import one_sentence, write_whole
from translations import lines_of

from fairseq_entmax.text_table import text_table

# A line of the log: the number of a block, then its subwords, with tabs between them
BLOCK = re.compile(r"fairseq_cli\.eval_lm(?: \| |:)[0-9]+ (?=\S+ \[)(.*\])")
UNKNOWN = "<unk>"
COLUMNS = {
    "word ppl": ("word_perplexity", ".2f"),
    "subword ppl": ("subword_perplexity", ".2f"),
    "bits/character": ("bits_per_character", ".4f"),
    "words": ("words", ""),
    "lines": ("lines", ""),
    "subwords": ("subwords", ""),
}


class Text(NamedTuple):
    """A text, in what its perplexity is counted: characters with one for the end of each line."""

    words: int
    lines: int
    characters: int

    def unit(self, subwords: int) -> str:
        """What fairseq predicts of it, of so many pieces: words where none is cut, else subwords."""
        return "words" if subwords == self.words + self.lines else "subwords"


def count(lines: list[str]) -> Text:
    words = sum(len(line.split()) for line in lines)
    return Text(words, len(lines), sum(len(line) + 1 for line in lines))


def log_probs(log: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Yield the subwords of a log and the natural logarithms of their probabilities."""
    for line in log:
        found = BLOCK.search(line)
        for item in found[1].split("\t") if found else ():
            subword, _, score = item.rpartition(" [")
            yield subword, float(score.removesuffix("]"))


def measure(
    scores: Iterable[tuple[str, float]], text: Text, subwords: int, name: str
) -> dict[str, float]:
    """Of the log-probabilities of all subwords; the perplexity is of the text with what is <unk> as <unk>."""
    nats, found, unknown = 0.0, 0, 0
    for subword, score in scores:
        nats -= score
        found += 1
        unknown += subword == UNKNOWN
    units = text.unit(subwords)
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
    return {
        "word_perplexity": math.exp(nats / (text.words + text.lines)),
        "subword_perplexity": math.exp(nats / subwords),
        "bits_per_character": nats / math.log(2) / text.characters,
        "nats": nats,
        "subwords": subwords,
        "unknown": unknown,
        "words": text.words,
        "lines": text.lines,
    }


def table(measured: dict[str, dict[str, float]], units: str) -> list[list[str]]:
    columns = [name for name in COLUMNS if units == "subwords" or "subword" not in name]
    rows = [["evaluation", *columns]]
    for name, found in measured.items():
        cells = (format(found[key], form) for key, form in (COLUMNS[title] for title in columns))
        rows.append([name, *cells])
    return rows


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
        for name, _, log in (given.partition("=") for given in options.logs):
            measured[name] = measure(log_probs(lines_of(Path(log))), text, subwords, log)
        write_whole(options.json, f"{json.dumps(measured, indent=2)}\n".encode())
        units = text.unit(subwords)
        print(text_table(table(measured, units)))
        unknown = next(iter(measured.values()))["unknown"]
        if unknown:
            print(f"{unknown} of the {units} are {UNKNOWN}, as the text has them or instead of it")


if __name__ == "__main__":
    main()
