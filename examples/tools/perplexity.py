"""A language model's perplexity per word, whatever its subwords, from fairseq-eval-lm's log.

perplexity.py --text text/test.en --data data-bin --json perplexity.json blocks=blocks.log window=window.log

The logs are those of ``fairseq-eval-lm --output-word-probs``, with the log-probability of every
subword. The perplexity per word is

    exp(nats of all subwords, including the end of each line / (words + lines)),

where words are separated by spaces in the text, before it is cut into subwords, and the end of each
line is predicted like a word. So models with different subwords, or none, can be compared if they
have the same words. Prints a table.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path

from batches import sizes
from messages import one_sentence
from translations import lines_of

from fairseq_entmax.files import write_together
from fairseq_entmax.text_table import text_table

# A line of the log: the number of a block, then its subwords, separated by tabs
BLOCK = re.compile(r"fairseq_cli\.eval_lm(?: \| |:)[0-9]+ (?=\S+ \[)(.*\])")
UNKNOWN = "<unk>"


def log_probs(log: list[str]) -> Iterator[tuple[str, float]]:
    """Yield the subwords of a log and their natural log-probabilities."""
    for line in log:
        found = BLOCK.search(line)
        for item in found[1].split("\t") if found else ():
            subword, _, score = item.rpartition(" [")
            yield subword, float(score.removesuffix("]"))


def measure(log: list[str], text: list[str], subwords: int, name: str) -> dict[str, float]:
    """The perplexities of a text, from a log of all its subwords; unknown ones count as <unk>."""
    scores = list(log_probs(log))
    nats = -sum(score for _, score in scores)
    words = sum(len(line.split()) for line in text)
    if len(scores) != subwords or not math.isfinite(nats):
        raise ValueError(
            f"{name} has the probabilities of {len(scores)} of the {subwords} subwords, and all must be "
            "finite: fairseq-eval-lm left out blocks that are longer than the model's "
            "--max-target-positions, or a probability is 0, which makes the perplexity infinite"
        )
    return {
        "word_perplexity": math.exp(nats / (words + len(text))),
        "subword_perplexity": math.exp(nats / subwords),
        "nats": nats,
        "words": words,
        "lines": len(text),
        "subwords": subwords,
        "unknown": sum(subword == UNKNOWN for subword, _ in scores),
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True, help="test text, without subwords")
    parser.add_argument("--data", type=Path, required=True, help="folder of the binarised data")
    parser.add_argument("--json", type=Path, required=True, help="file to write all numbers to")
    parser.add_argument("logs", nargs="+", metavar="NAME=LOG", help="logs of fairseq-eval-lm")
    options = parser.parse_args(arguments)
    with one_sentence():
        text = lines_of(options.text)
        subwords = int(sizes(options.data / "test.idx").sum())
        measured = {}
        rows = [["evaluation", "word ppl", "subword ppl", "words", "lines", "subwords", UNKNOWN]]
        for name, _, log in (given.partition("=") for given in options.logs):
            own = measured[name] = measure(lines_of(Path(log)), text, subwords, log)
            perplexities = (own["word_perplexity"], own["subword_perplexity"])
            counts = (own[what] for what in ("words", "lines", "subwords", "unknown"))
            rows.append([name, *(f"{one:.2f}" for one in perplexities), *map(str, counts)])
        write_together({options.json: f"{json.dumps(measured, indent=2)}\n".encode()})
        print(text_table(rows))


if __name__ == "__main__":
    main()
