"""The accuracy of classifiers with 95 % intervals, beside baselines that need no attention.

accuracy.py score predictions.jsonl --text text --output accuracy.json
accuracy.py write first.jsonl second.jsonl ... --names softmax fusedmax ... --text text > accuracy.tsv
accuracy.py show accuracy.tsv

The folder text has {train,test}.{input0,input1,label} and test.group, whose lines name the group
of each example; examples of a group resemble each other, so the bootstrap draws whole groups.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy
from messages import one_sentence
from naive_bayes import NaiveBayes
from rouge_table import aligned
from translations import lines_of

Z = 1.959963984540054  # of 95 %, two-sided
SAMPLES, SEED = 2000, 1  # of the bootstrap
COLUMNS = ("model", "accuracy", "95 % interval", "Wilson", "change", "95 % interval of the change")


def wilson(correct: int, total: int) -> tuple[float, float]:
    """Wilson's score interval of a share, for examples that are independent of each other.

    Returns:
        low and high, from 0 to 1.
    """
    share, spread = correct / total, Z * Z / total
    middle = share + spread / 2
    half = Z * math.sqrt(share * (1 - share) / total + spread / total / 4)
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def bootstrap(values: Sequence[float], groups: Sequence[str]) -> tuple[float, float]:
    """The 95 % interval of a mean by the bootstrap over groups (Efron's percentiles).

    Args:
        values: of each example; a mean of 0 and 1, or of differences of such.
        groups: of each example. Each of the `SAMPLES` draws as many groups as there are, with
            replacement, and takes the mean over all their examples.
    """
    place = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    members = numpy.array([place[name] for name in groups])
    sums = numpy.bincount(members, weights=numpy.asarray(values, dtype=float))
    sizes = numpy.bincount(members).astype(float)
    draws = numpy.random.default_rng(SEED).integers(len(place), size=(SAMPLES, len(place)))
    means = sums[draws].sum(axis=1) / sizes[draws].sum(axis=1)
    low, high = numpy.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def read_predictions(path: Path, labels: Sequence[str]) -> list[bool]:
    """Tell for each example whether it was classified rightly.

    Args:
        labels: the true ones.

    Raises:
        ValueError: the file is none of predictions.py, or of other examples.
    """
    rows = [json.loads(line) for line in lines_of(path)]
    if len(rows) != len(labels):
        raise ValueError(f"{path} has {len(rows)} predictions for {len(labels)} labels: remove it")
    return [row["predicted"] == label for row, label in zip(rows, labels, strict=True)]


def measured(correct: Sequence[bool], groups: Sequence[str]) -> dict[str, Any]:
    """Accuracy and its intervals, in percent."""
    low, high = bootstrap([float(right) for right in correct], groups)
    wilson_low, wilson_high = wilson(sum(correct), len(correct))
    return {
        "accuracy": 100 * sum(correct) / len(correct),
        "correct": sum(correct),
        "examples": len(correct),
        "groups": len(set(groups)),
        "bootstrap": [100 * low, 100 * high],
        "wilson": [100 * wilson_low, 100 * wilson_high],
    }


class Texts:
    """The test set of a recipe, and what baselines make of it.

    Args:
        folder: with the files of prepare.sh.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.labels = lines_of(folder / "test.label")
        groups = folder / "test.group"
        each = [f"{number}" for number in range(len(self.labels))]
        self.groups = lines_of(groups) if groups.exists() else each

    def examples(self, split: str) -> list[list[str]]:
        """The words of each example, those of a second input told apart from those of the first."""
        first = [line.split() for line in lines_of(self.folder / f"{split}.input0")]
        path = self.folder / f"{split}.input1"
        if not path.exists():
            return first
        second = ([f"{word} in the second" for word in line.split()] for line in lines_of(path))
        return [[*left, *right] for left, right in zip(first, second, strict=True)]

    def baselines(self) -> dict[str, list[bool]]:
        """Which test examples the commonest label, and a naive Bayes classifier, get right."""
        train = lines_of(self.folder / "train.label")
        commonest = Counter(train).most_common(1)[0][0]
        model = NaiveBayes(zip(self.examples("train"), train, strict=True))
        predicted = [model.predict(words) for words in self.examples("test")]
        return {
            "commonest label": [label == commonest for label in self.labels],
            "naive Bayes": [
                guess == label for guess, label in zip(predicted, self.labels, strict=True)
            ],
        }


def told(document: dict[str, Any]) -> str:
    """What scores.txt has of a model."""
    low, high = document["bootstrap"]
    wilson_low, wilson_high = document["wilson"]
    return (
        f"accuracy {document['accuracy']:.2f} % ({document['correct']} of "
        f"{document['examples']})\n"
        f"95 % interval {low:.2f} to {high:.2f} (bootstrap over {document['groups']} groups)\n"
        f"95 % interval {wilson_low:.2f} to {wilson_high:.2f} (Wilson, examples taken as "
        "independent)\n"
    )


def row_of(name: str, own: dict[str, Any], change: tuple[float, float, float] | None) -> list[str]:
    """The cells of a model; `change` is against the first model, with its interval, in percent."""
    cells = [name, f"{own['accuracy']:.2f}"]
    cells += [f"{low:.2f} to {high:.2f}" for low, high in (own["bootstrap"], own["wilson"])]
    if change is None:
        return [*cells, "", ""]
    value, low, high = change
    return [*cells, f"{value:+.2f}", f"{low:+.2f} to {high:+.2f}"]


def table(names: Sequence[str], files: Sequence[Path], texts: Texts) -> list[list[str]]:
    """The rows: columns' names, baselines, then models, which are compared with the first.

    Raises:
        ValueError: there are not as many names as files, or a file is of other examples.
    """
    if len(names) != len(files):
        raise ValueError(f"--names has {len(names)} names for {len(files)} files: give as many")
    rows = [list(COLUMNS)]
    for name, correct in texts.baselines().items():
        rows.append(row_of(name, measured(correct, texts.groups), None))
    first: list[bool] | None = None
    for name, path in zip(names, files, strict=True):
        correct = read_predictions(path, texts.labels)
        change = None
        if first is not None:
            gains = [own - other for own, other in zip(correct, first, strict=True)]
            low, high = bootstrap(gains, texts.groups)
            change = 100 * sum(gains) / len(gains), 100 * low, 100 * high
        first = first or correct
        rows.append(row_of(name, measured(correct, texts.groups), change))
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    score = commands.add_parser("score", help="of one model")
    score.add_argument("predictions", type=Path)
    score.add_argument("--text", type=Path, required=True, help="folder of prepare.sh")
    score.add_argument("--output", type=Path, required=True, help="the JSON to write")
    write = commands.add_parser("write", help="the table of models and baselines")
    write.add_argument("predictions", type=Path, nargs="+")
    write.add_argument("--names", nargs="+", required=True, help="of the models")
    write.add_argument("--text", type=Path, required=True, help="folder of prepare.sh")
    show = commands.add_parser("show", help="print it for people")
    show.add_argument("table", type=Path)
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "score":
            texts = Texts(options.text)
            document = measured(read_predictions(options.predictions, texts.labels), texts.groups)
            options.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
            print(told(document), end="")
        elif options.command == "write":
            rows = table(options.names, options.predictions, Texts(options.text))
            print("\n".join("\t".join(row) for row in rows))
        else:
            with options.table.open(encoding="utf-8", newline="") as file:
                print(aligned(csv.reader(file, delimiter="\t")), end="")


if __name__ == "__main__":
    main()
