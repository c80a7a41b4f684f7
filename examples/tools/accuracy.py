"""The accuracy of classifiers with 95 % intervals, beside baselines that need no attention.

accuracy.py score predictions.jsonl --labels text/test.label --groups text/test.group > accuracy.json
accuracy.py tell accuracy.json
accuracy.py write first.jsonl second.jsonl ... --names softmax fusedmax ... --words tok --inputs input0
    --train-labels text/train.label --labels text/test.label --groups text/test.group > accuracy.tsv
accuracy.py show accuracy.tsv

Examples of a group resemble each other, so the bootstrap draws whole groups. Without groups, each
example is one of its own.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Truth:
    """What a test set is scored by.

    Attributes:
        labels: the true ones.
        groups: of each example, the name of those that resemble each other.
    """

    labels: list[str]
    groups: list[str]

    @classmethod
    def read(cls, labels: Path, groups: Path | None) -> Truth:
        """Read both; without a file of groups, each example is one of its own.

        Raises:
            ValueError: there are not as many groups as labels.
        """
        true = lines_of(labels)
        named = lines_of(groups) if groups else [f"{number}" for number in range(len(true))]
        if len(named) != len(true):
            raise ValueError(f"{groups} has {len(named)} lines for {len(true)} labels")
        return cls(true, named)


def examples(prefix: Path, inputs: Sequence[str]) -> list[list[str]]:
    """The words of each example, those of a second text told apart from those of the first."""
    sides = [lines_of(Path(f"{prefix}.{name}")) for name in inputs]
    return [
        [f"{number} {word}" for number, text in enumerate(texts) for word in text.split()]
        for texts in zip(*sides, strict=True)
    ]


def baselines(
    words: Path, inputs: Sequence[str], train: Sequence[str], test: Truth
) -> dict[str, list[bool]]:
    """Which test examples the commonest label, and a naive Bayes classifier, get right.

    Args:
        words: folder with the words of train and test.
        inputs: the ends of the files' names.
        train: labels of the training examples.
    """
    commonest = Counter(train).most_common(1)[0][0]
    model = NaiveBayes(zip(examples(words / "train", inputs), train, strict=True))
    guesses = [model.predict(example) for example in examples(words / "test", inputs)]
    return {
        "commonest label": [label == commonest for label in test.labels],
        "naive Bayes": [guess == label for guess, label in zip(guesses, test.labels, strict=True)],
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


def table(
    simple: dict[str, list[bool]], models: dict[str, list[bool]], groups: Sequence[str]
) -> list[list[str]]:
    """The rows: columns' names, baselines, then models, which are compared with the first of them.

    Args:
        simple: which examples each baseline got right.
        models: the same of each model.
        groups: of the examples.
    """
    rows = [list(COLUMNS)]
    rows += [row_of(name, measured(correct, groups), None) for name, correct in simple.items()]
    first: list[bool] | None = None
    for name, correct in models.items():
        change = None
        if first is None:
            first = correct
        else:
            gains = [own - other for own, other in zip(correct, first, strict=True)]
            low, high = bootstrap(gains, groups)
            change = 100 * sum(gains) / len(gains), 100 * low, 100 * high
        rows.append(row_of(name, measured(correct, groups), change))
    return rows


def written(options: argparse.Namespace, test: Truth) -> list[list[str]]:
    """The table that a command asks for.

    Raises:
        ValueError: there are not as many names as files, or a file is of other examples.
    """
    names, files = options.names, options.predictions
    if len(names) != len(files):
        raise ValueError(f"--names has {len(names)} names for {len(files)} files: give as many")
    simple = baselines(options.words, options.inputs, lines_of(options.train_labels), test)
    right = [read_predictions(path, test.labels) for path in files]
    return table(simple, dict(zip(names, right, strict=True)), test.groups)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    score = commands.add_parser("score", help="of one model, as JSON")
    score.add_argument("predictions", type=Path)
    tell = commands.add_parser("tell", help="print what score wrote for people")
    tell.add_argument("scores", type=Path)
    write = commands.add_parser("write", help="the table of models and baselines")
    write.add_argument("predictions", type=Path, nargs="+")
    write.add_argument("--names", nargs="+", required=True, help="of the models")
    write.add_argument("--words", type=Path, required=True, help="folder with {train,test}.INPUT")
    write.add_argument("--inputs", nargs="+", required=True, help="input0, and input1 of pairs")
    write.add_argument("--train-labels", type=Path, required=True)
    for command in (score, write):
        command.add_argument("--labels", type=Path, required=True, help="of the test set")
        command.add_argument("--groups", type=Path, help="of the test set")
    show = commands.add_parser("show", help="print the table for people")
    show.add_argument("table", type=Path)
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "tell":
            print(told(json.loads(options.scores.read_text(encoding="utf-8"))), end="")
        elif options.command == "show":
            with options.table.open(encoding="utf-8", newline="") as file:
                print(aligned(csv.reader(file, delimiter="\t")), end="")
        else:
            test = Truth.read(options.labels, options.groups)
            if options.command == "write":
                print("\n".join("\t".join(row) for row in written(options, test)))
                return
            correct = read_predictions(options.predictions, test.labels)
            print(json.dumps(measured(correct, test.groups), indent=1))


if __name__ == "__main__":
    main()
