"""How well a classifier does, and the words that its pooling attention selects."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from fairseq_entmax.analysis.data.tokens import without_marks
from fairseq_entmax.attentions import POOLING, PREMISE
from fairseq_entmax.classification_data import class_names

# Of a class, the words that the report has; those with fewer places in its texts are left out
MOST_WORDS = 20
FEWEST_PLACES = 5


def label_names(task: Any) -> list[str]:
    """What the classes are called, in their order."""
    return class_names(task.label_dictionary, task.cfg.num_classes)


def pooled_tokens(model: Any, tokens: Tensor) -> dict[str, Tensor]:
    """Which tokens ``(batch, tokens)`` each attention that pools may look at, by its name."""
    symbols, names = model.symbols, list(model.pooling_mappings())
    if PREMISE not in names:
        return {POOLING: symbols.keys(tokens, symbols.text(tokens))}
    first, second = (symbols.keys(tokens, text) for text in symbols.texts(tokens))
    return {name: first if name == PREMISE else second for name in names}


class ClassResults:
    """Accuracy, and for each attention that pools its numbers and the words it selects."""

    def __init__(self, model: Any, task: Any) -> None:
        self._model = model
        self.is_wrong = torch.zeros(0, dtype=torch.bool)
        self._labels = label_names(task)
        self._confusion = torch.zeros(len(self._labels), len(self._labels), dtype=torch.int64)
        self._poolings = {
            name: PoolingSums(task.source_dictionary, len(self._labels))
            for name in model.pooling_mappings()
        }

    def update(self, sample: Any, batch: Any, output: tuple[Tensor, Any]) -> None:
        """Add a batch."""
        logits, extra = output
        gold, predicted = sample["target"].view(-1).cpu(), logits.argmax(dim=-1).cpu()
        self.is_wrong = predicted != gold
        places = gold * len(self._labels) + predicted
        counts = places.bincount(minlength=self._confusion.numel())
        self._confusion += counts.view_as(self._confusion)
        keys = pooled_tokens(self._model, batch.source.tokens)
        for name, sums in self._poolings.items():
            sums.update(extra["pooling"][name], keys[name], batch.source, gold)

    def entry(self) -> dict[str, Any]:
        """Fields of the model's entry in the document."""
        total = int(self._confusion.sum())
        poolings = [
            {"name": name, **_mapping(self._model, name), **sums.entry(), "words": sums.words()}
            for name, sums in self._poolings.items()
        ]
        return {
            "classification": {
                "accuracy": int(self._confusion.diagonal().sum()) / total if total else None,
                "confusion": self._confusion.tolist(),
                "pooling": poolings,
            }
        }

    def of_map(self, sample: Any, output: tuple[Tensor, Any]) -> dict[str, Any]:
        """What is said of a text that maps are of."""
        probs = self._model.get_normalized_probs(output, False, sample)[0]
        predicted = int(probs.argmax())
        return {
            "label": predicted,
            "probability": float(probs[predicted]),
            "pooling": {
                name: weights[0].float().tolist() for name, weights in output[1]["pooling"].items()
            },
        }


class PoolingSums:
    """What one attention that pools does, summed up over batches."""

    def __init__(self, dictionary: Any, classes: int) -> None:
        self._symbols: list[str] = dictionary.symbols
        self._texts = 0
        self._sums: dict[str, Tensor] = {}
        # Of each class: a word's weight, what an even weight would be, and its places
        self._words: list[dict[str, list[float]]] = [
            defaultdict(lambda: [0.0, 0.0, 0]) for _ in range(classes)
        ]

    def update(self, weights: Tensor, keys: Tensor, side: Any, gold: Tensor) -> None:
        """Add weights ``(batch, heads, tokens)``, where they may be, and the texts' classes."""
        precise, support = weights.double(), torch.count_nonzero(weights, dim=-1).double()
        each = {
            "density": support / keys.sum(dim=1).clamp(min=1)[:, None],
            "support": support,
            "entropy": torch.special.entr(precise).sum(dim=-1),
            "confidence": precise.amax(dim=-1),
        }
        for name, values in each.items():
            self._sums[name] = self._sums.get(name, 0.0) + values.sum(dim=0).cpu()
        self._texts += len(weights)
        rows = (precise.mean(dim=1), keys & (side.words >= 0), keys, side.tokens, side.words, gold)
        for weights_of_text, is_word, is_key, tokens, words, label in zip(
            *(one.tolist() for one in rows), strict=True
        ):
            even = 1 / max(1, sum(is_key))
            places = (place for place, is_there in enumerate(is_word) if is_there)
            for _, group in itertools.groupby(places, key=words.__getitem__):
                word = list(group)
                sums = self._words[label]["".join(self._symbols[tokens[n]] for n in word)]
                sums[0] += sum(weights_of_text[n] for n in word)
                sums[1] += len(word) * even
                sums[2] += 1

    def entry(self) -> dict[str, Any]:
        """The numbers of each head, means over texts."""
        columns = {name: (total / self._texts).tolist() for name, total in self._sums.items()}
        rows = enumerate(zip(*columns.values(), strict=True))
        return {"heads": [{"head": n, **dict(zip(columns, row, strict=True))} for n, row in rows]}

    def words(self) -> list[list[dict[str, Any]]]:
        """Of each class, the words with the most weight for their number, the first the most."""
        chosen = []
        for of_class in self._words:
            ranked = sorted(
                (-weight / even, without_marks(text), weight / count, int(count))
                for text, (weight, even, count) in of_class.items()
                if count >= FEWEST_PLACES and weight > 0
            )
            chosen.append(
                [
                    {"word": word, "ratio": -ratio, "weight": weight, "count": count}
                    for ratio, word, weight, count in ranked[:MOST_WORDS]
                ]
            )
        return chosen


def _mapping(model: Any, name: str) -> dict[str, Any]:
    """What the mapping of an attention that pools is, and what it has learned."""
    mapping = model.pooling_mappings()[name]
    values = {
        key: [None if math.isnan(one) else one for one in value.detach().double().tolist()]
        for key, value in mapping.head_values().items()
    }
    spec = model.attention_options.pooling.specs[name]
    return {"mapping": str(spec), "learned": list(mapping.learned), "values": values}
