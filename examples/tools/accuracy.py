"""The accuracy of classifiers with 95 % intervals.

accuracy.py predictions.jsonl --labels text/test.label --groups text/test.group > scores.txt
accuracy.py first.jsonl second.jsonl ... --names softmax fusedmax ... --labels text/test.label > accuracy.tsv

Examples of a group resemble each other, so the bootstrap draws whole groups. Without groups, each
example is a group.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy
from messages import one_sentence
from translations import lines_of

SAMPLES, SEED = 2000, 1  # of the bootstrap
COLUMNS = ("model", "accuracy", "95 % interval", "change", "95 % interval of the change")


def bootstrap(values: Sequence[float], groups: Sequence[str]) -> tuple[float, float]:
    """The 95 % interval of a mean by the bootstrap over groups (Efron's percentiles)."""
    place = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    members = numpy.array([place[name] for name in groups])
    sums = numpy.bincount(members, weights=numpy.asarray(values, dtype=float))
    sizes = numpy.bincount(members).astype(float)
    draws = numpy.random.default_rng(SEED).integers(len(sizes), size=(SAMPLES, len(sizes)))
    means = sums[draws].sum(axis=1) / sizes[draws].sum(axis=1)
    low, high = numpy.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def read_predictions(path: Path, labels: Sequence[str]) -> list[bool]:
    rows = [json.loads(line) for line in lines_of(path)]
    if len(rows) != len(labels):
        raise ValueError(f"{path} has {len(rows)} predictions for {len(labels)} labels: remove it")
    return [row["predicted"] == label for row, label in zip(rows, labels, strict=True)]


def with_interval(values: Sequence[float], groups: Sequence[str], sign: str = "") -> list[str]:
    """A mean in percent and its interval, such as ``92.45`` and ``90.40 to 94.40``."""
    low, high = (100 * bound for bound in bootstrap(values, groups))
    mean = 100 * sum(values) / len(values)
    return [f"{mean:{sign}.2f}", f"{low:{sign}.2f} to {high:{sign}.2f}"]


def table(models: dict[str, list[bool]], groups: Sequence[str]) -> list[list[str]]:
    """A row for each model; all are compared with the first of them."""
    rows = [list(COLUMNS)]
    first, *_ = models.values()
    for name, right in models.items():
        gains = [ours - other for ours, other in zip(right, first, strict=True)]
        change = with_interval(gains, groups, "+") if right is not first else ["", ""]
        rows.append([name, *with_interval(right, groups), *change])
    return rows


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("predictions", type=Path, nargs="+")
    parser.add_argument("--names", nargs="+", help="names of the models: print a table")
    parser.add_argument("--labels", type=Path, required=True, help="labels of the test set")
    parser.add_argument("--groups", type=Path, help="groups of the test set")
    options = parser.parse_args(arguments)
    with one_sentence():
        labels = lines_of(options.labels)
        groups = lines_of(options.groups) if options.groups else list(map(str, range(len(labels))))
        right = [read_predictions(path, labels) for path in options.predictions]
        if options.names:
            rows = table(dict(zip(options.names, right, strict=True)), groups)
            print("\n".join("\t".join(row) for row in rows))
            return
        accuracy, interval = with_interval(right[0], groups)
        print(f"accuracy {accuracy} % ({sum(right[0])} of {len(labels)})")
        print(f"95 % interval {interval} (bootstrap over {len(set(groups))} groups)")


if __name__ == "__main__":
    main()
