"""What fairseq-generate and sacrebleu write, read for the tables and files of a recipe.

translations.py order generate-test.txt text/test.en > test.hyp
translations.py score BLEU scores.txt
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from messages import one_sentence

HYPOTHESIS = re.compile(r"H-([0-9]+)\t[^\t]*\t(.*)")


def lines_of(path: Path) -> list[str]:
    """The lines of a UTF-8 text without their ends, split at "\\n" alone."""
    return path.read_bytes().decode("utf-8", "surrogateescape").split("\n")[:-1]


def ordered_hypotheses(generated: Path) -> list[str]:
    """The translations in the order of the test set.

    Args:
        generated: what ``fairseq-generate --results-path`` wrote: sorted by length, with
            ``H-<line> <score> <translation>`` among its lines, with tabs between them.
    """
    found = (HYPOTHESIS.fullmatch(line) for line in lines_of(generated))
    numbered = sorted((int(match[1]), match[2]) for match in found if match)
    return [text for _, text in numbered]


def require_as_many(hypotheses: list[str], references: Path, generated: Path) -> None:
    """Do nothing where each reference has its translation.

    Raises:
        ValueError: there are more or fewer.
    """
    expected = references.read_bytes().count(b"\n")
    if len(hypotheses) != expected:
        raise ValueError(
            f"fairseq-generate wrote {len(hypotheses)} translations for {expected} test "
            f"sentences: see {generated}"
        )


def score_of(metric: str, scores: Path) -> str:
    """The number, as it is printed, in a line such as ``BLEU|nrefs:1|... = 24.50 ...``.

    Args:
        metric: sacrebleu's name, such as BLEU or chrF2.
        scores: what sacrebleu printed with ``--format text``.

    Raises:
        ValueError: the metric is not there.
    """
    found = re.search(rf"(?m)^ *{re.escape(metric)}\|.*? = (\S+)", scores.read_text("utf-8"))
    if not found:
        raise ValueError(f"no {metric} in {scores}: remove that file and run again")
    return found[1]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    order = commands.add_parser("order", help="print translations in the order of the test set")
    order.add_argument("generated", type=Path, help="what fairseq-generate wrote")
    order.add_argument("references", type=Path, help="of the test set, a sentence a line")
    score = commands.add_parser("score", help="print the number of a metric")
    score.add_argument("metric")
    score.add_argument("scores", type=Path, help="what sacrebleu printed")
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "score":
            print(score_of(options.metric, options.scores))
            return
        hypotheses = ordered_hypotheses(options.generated)
        require_as_many(hypotheses, options.references, options.generated)
        text = "".join(f"{line}\n" for line in hypotheses)
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))


if __name__ == "__main__":
    main()
