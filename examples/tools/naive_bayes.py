"""Multinomial naive Bayes over bags of words: what a classifier without attention gets right."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence


class NaiveBayes:
    """A classifier with add-one smoothing (Manning, Raghavan, Schütze 2008, figure 13.2).

    Args:
        examples: the words and the label of each.
    """

    def __init__(self, examples: Iterable[tuple[Sequence[str], str]]) -> None:
        labels: Counter[str] = Counter()
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for words, label in examples:
            labels[label] += 1
            counts[label].update(words)
        self.known = {word for count in counts.values() for word in count}
        examples_seen = labels.total()
        self.priors = {label: math.log(n / examples_seen) for label, n in labels.items()}
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
