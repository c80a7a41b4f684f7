"""The accuracy of classifiers with 95 % intervals, beside baselines that need no attention.

accuracy.py score predictions.jsonl --labels text/test.label --groups text/test.group > accuracy.json
accuracy.py tell accuracy.json
accuracy.py write first.jsonl second.jsonl ... --names softmax fusedmax ... --words tok --inputs input0
    --train-labels text/train.label --labels text/test.label --groups text/test.group > accuracy.tsv

Examples of a group resemble each other, so the bootstrap draws whole groups. Without groups, each
example is one of its own.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy
from messages import one_sentence
from translations import lines_of

Z = 1.959963984540054  # of 95 %, two-sided
SAMPLES, SEED = 2000, 1  # of the bootstrap
COLUMNS = ("model", "accuracy", "95 % interval", "Wilson", "change", "95 % interval of the change")


def wilson(correct: int, total: int) -> tuple[float, float]:
    share, spread = correct / total, Z * Z / total
    middle = share + spread / 2
    half = Z * math.sqrt(share * (1 - share) / total + spread / total / 4)
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def bootstrap(values: Sequence[float], groups: Sequence[str]) -> tuple[float, float]:
    """The 95 % interval of a mean by the bootstrap over groups (Efron's percentiles)."""
    place = {name: number for number, name in enumerate(dict.fromkeys(groups))}
    members = numpy.array([place[name] for name in groups])
    sums = numpy.bincount(members, weights=numpy.asarray(values, dtype=float))
    sizes = numpy.bincount(members).astype(float)
    draws = numpy.random.default_rng(SEED).integers(len(place), size=(SAMPLES, len(place)))
    means = sums[draws].sum(axis=1) / sizes[draws].sum(axis=1)
    low, high = numpy.quantile(means, [0.025, 0.975])
    return float(low), float(high)


class NaiveBayes:
    """Multinomial, with add-one smoothing (Manning, Raghavan, Schütze 2008, figure 13.2)."""

    def __init__(self, examples: Iterable[tuple[Sequence[str], str]]) -> None:
        labels: Counter[str] = Counter()
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for words, label in examples:
            labels[label] += 1
            counts[label].update(words)
        self.known = {word for count in counts.values() for word in count}
        seen = labels.total()
        self.priors = {label: math.log(n / seen) for label, n in labels.items()}
        totals = {label: counts[label].total() + len(self.known) for label in labels}
        self.unseen = {label: -math.log(total) for label, total in totals.items()}
        self.weights = {
            label: {word: math.log((n + 1) / totals[label]) for word, n in counts[label].items()}
            for label in labels
        }

    def predict(self, words: Sequence[str]) -> str:
        """The likeliest label; words that training did not have say nothing."""
        known = [word for word in words if word in self.known]

        def score(label: str) -> float:
            weights, unseen = self.weights[label], self.unseen[label]
            return self.priors[label] + sum(weights.get(word, unseen) for word in known)

        return max(self.priors, key=score)


def read_predictions(path: Path, labels: Sequence[str]) -> list[bool]:
    rows = [json.loads(line) for line in lines_of(path)]
    if len(rows) != len(labels):
        raise ValueError(f"{path} has {len(rows)} predictions for {len(labels)} labels: remove it")
    return [row["predicted"] == label for row, label in zip(rows, labels, strict=True)]


def measured(correct: Sequence[bool], groups: Sequence[str]) -> dict[str, Any]:
    intervals = bootstrap([float(right) for right in correct], groups)
    return {
        "accuracy": 100 * sum(correct) / len(correct),
        "correct": sum(correct),
        "examples": len(correct),
        "groups": len(set(groups)),
        "bootstrap": [100 * bound for bound in intervals],
        "wilson": [100 * bound for bound in wilson(sum(correct), len(correct))],
    }


def examples(prefix: Path, inputs: Sequence[str]) -> list[list[str]]:
    """The words of each example, those of a second text told apart from those of the first."""
    sides = [lines_of(Path(f"{prefix}.{name}")) for name in inputs]
    return [
        [f"{number} {word}" for number, text in enumerate(texts) for word in text.split()]
        for texts in zip(*sides, strict=True)
    ]


def baselines(
    words: Path, inputs: Sequence[str], train: Sequence[str], test: Sequence[str]
) -> dict[str, list[bool]]:
    """Which test examples the commonest label, and a naive Bayes classifier, get right."""
    commonest = Counter(train).most_common(1)[0][0]
    model = NaiveBayes(zip(examples(words / "train", inputs), train, strict=True))
    guesses = [model.predict(example) for example in examples(words / "test", inputs)]
    return {
        "commonest label": [label == commonest for label in test],
        "naive Bayes": [guess == label for guess, label in zip(guesses, test, strict=True)],
    }


def told(document: dict[str, Any]) -> str:
    low, high = document["bootstrap"]
    wilson_low, wilson_high = document["wilson"]
    return (
        f"accuracy {document['accuracy']:.2f} % ({document['correct']} of "
        f"{document['examples']})\n"
        f"95 % interval {low:.2f} to {high:.2f} (bootstrap over {document['groups']} groups)\n"
        f"95 % interval {wilson_low:.2f} to {wilson_high:.2f} (Wilson, examples taken as "
        "independent)"
    )


def table(
    simple: dict[str, list[bool]], models: dict[str, list[bool]], groups: Sequence[str]
) -> list[list[str]]:
    """The rows: baselines, then models, which are compared with the first of them."""
    rows = [list(COLUMNS)]
    first = next(iter(models))
    for name, correct in (simple | models).items():
        own = measured(correct, groups)
        cells = [name, f"{own['accuracy']:.2f}"]
        cells += [f"{low:.2f} to {high:.2f}" for low, high in (own["bootstrap"], own["wilson"])]
        if name in simple or name == first:
            rows.append([*cells, "", ""])
            continue
        gains = [ours - other for ours, other in zip(correct, models[first], strict=True)]
        low, high = bootstrap(gains, groups)
        change = 100 * sum(gains) / len(gains)
        rows.append([*cells, f"{change:+.2f}", f"{100 * low:+.2f} to {100 * high:+.2f}"])
    return rows


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
    options = parser.parse_args(arguments)
    with one_sentence():
        if options.command == "tell":
            print(told(json.loads(options.scores.read_text(encoding="utf-8"))))
            return
        labels = lines_of(options.labels)
        groups = lines_of(options.groups) if options.groups else list(map(str, range(len(labels))))
        if options.command == "score":
            correct = read_predictions(options.predictions, labels)
            print(json.dumps(measured(correct, groups), indent=1))
            return
        right = [read_predictions(path, labels) for path in options.predictions]
        models = dict(zip(options.names, right, strict=True))
        train = lines_of(options.train_labels)
        simple = baselines(options.words, options.inputs, train, labels)
        print("\n".join("\t".join(row) for row in table(simple, models, groups)))


if __name__ == "__main__":
    main()
