"""What the report's page shows, taken from an analysis and made small for a browser."""

from __future__ import annotations

import base64
import gzip
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairseq_entmax.analysis.report.roles import roles
from fairseq_entmax.modules.attention import ATTENTIONS

DIGITS = 5  # significant, of every number in the page
LEVELS = 255  # shades of a weight above zero


@dataclass(frozen=True)
class Measure:
    """One number of a head that the page can colour and sort by.

    Attributes:
        name: as ``--measure`` has it.
        title: as the page shows it.
        place: the keys that lead to it in a head of the analysis.
        meaning: one sentence.
        is_main: whether the list of heads has a column of it.
    """

    name: str
    title: str
    place: tuple[str, ...]
    meaning: str
    is_main: bool = False


MEASURES = (
    Measure(
        "density",
        "Density",
        ("density",),
        "share of the keys that get a weight above zero; 1 for softmax",
        is_main=True,
    ),
    Measure(
        "alpha",
        "α",
        ("alpha",),
        "the mapping's exponent: 1 is softmax, 2 is sparsemax",
        is_main=True,
    ),
    Measure(
        "entropy",
        "Entropy",
        ("entropy",),
        "of the weights of a query, in nats; 0 where one key has all",
        is_main=True,
    ),
    Measure(
        "confidence",
        "Confidence",
        ("confidence",),
        "largest weight of a query, mean over the queries, the end of sentence left out",
        is_main=True,
    ),
    Measure(
        "relevance",
        "Relevance",
        ("relevance",),
        "the head's share of its layer's relevance to the predicted token, by layer-wise "
        "relevance propagation; the heads of one attention of a layer sum to 1",
        is_main=True,
    ),
    Measure(
        "gradient",
        "Gradient",
        ("gradient",),
        "the head's share of how much the loss changes with the gates of its layer's heads; the "
        "heads of one attention of a layer sum to 1",
        is_main=True,
    ),
    Measure("gate", "Gate", ("gate",), "what the head's output is multiplied by", is_main=True),
    Measure(
        "positional-share",
        "Positional share",
        ("positional", "share"),
        "share of the queries whose largest weight is at the head's one relative offset; only "
        "where the head has a positional role",
    ),
    Measure(
        "positional-confidence",
        "Positional confidence",
        ("positional", "confidence"),
        "mean weight at that offset",
    ),
    Measure(
        "rare-word",
        "Rarest word",
        ("rare_word", "rarest"),
        "share of the queries whose largest weight is on the rarest source token",
    ),
    Measure(
        "two-rarest-words",
        "Two rarest words",
        ("rare_word", "two_rarest"),
        "the same for the two rarest source tokens",
    ),
    Measure(
        "subword-merging",
        "Subword merging",
        ("subword_merging", "all"),
        "weight that a word's subwords put on the rest of their word; a word of one subword "
        "counts by the weight on itself",
    ),
    Measure(
        "subword-merging-split",
        "Subword merging, split words",
        ("subword_merging", "split"),
        "the same over words of several subwords only",
    ),
    Measure(
        "question-mark",
        "Question mark",
        ("final_punctuation", "interrogative"),
        "weight on the question mark at the end of a question",
    ),
    Measure(
        "full-stop",
        "Final punctuation of statements",
        ("final_punctuation", "declarative"),
        "weight on the punctuation at the end of a statement",
    ),
    Measure(
        "pos-kl",
        "Part-of-speech divergence",
        ("pos_kl",),
        "Kullback-Leibler divergence of the parts of speech looked at from those of the text",
    ),
    Measure(
        "named-entity",
        "Named entities",
        ("named_entity",),
        "share of the looked-at words that are named entities",
    ),
)


def measures_of(analysis: dict[str, Any]) -> list[Measure]:
    """The measures that at least one head has a number for."""
    heads = [
        head
        for model in analysis["models"]
        for layer in model["attentions"]
        for head in layer["heads"]
    ]
    return [
        measure for measure in MEASURES if any(_value(head, measure) is not None for head in heads)
    ]


def page_data(
    analysis: dict[str, Any], figures: Sequence[Any], measure: str | None
) -> dict[str, Any]:
    """The JSON that the page's script reads; the maps' weights stand beside it.

    Args:
        analysis: a valid analysis.
        figures: with ``name``, ``title``, ``caption`` and ``for_page()``.
        measure: the name of the one shown first; None takes the first there is.
    """
    measures = measures_of(analysis)
    return {
        "data": analysis["data"],
        "settings": analysis["settings"],
        "annotations": analysis["annotations"],
        "attentions": list(ATTENTIONS),
        "measure": measure or (measures[0].name if measures else None),
        "measures": [
            {
                "name": item.name,
                "title": item.title,
                "meaning": item.meaning,
                "isMain": item.is_main,
            }
            for item in measures
        ],
        "models": [
            {
                key: model[key]
                for key in ("name", "checkpoint", "architecture", "parameters", "updates", "loss")
            }
            for model in analysis["models"]
        ],
        "layers": [
            {
                "model": number,
                "attention": layer["attention"],
                "layer": layer["layer"],
                "mapping": layer["mapping"],
                "diversity": _short(layer["diversity"]),
                "heads": [_head(head, layer, analysis, measures) for head in layer["heads"]],
            }
            for number, model in enumerate(analysis["models"])
            for layer in model["attentions"]
        ],
        "figures": [
            {
                "name": figure.name,
                "title": figure.title,
                "caption": figure.caption,
                "spec": figure.for_page(),
            }
            for figure in figures
        ],
        "sentences": [_sentence(entry) for entry in analysis["maps"]],
    }


def _head(
    head: dict[str, Any],
    layer: dict[str, Any],
    analysis: dict[str, Any],
    measures: Sequence[Measure],
) -> dict[str, Any]:
    return {
        "head": head["head"],
        "values": {measure.name: _short(_value(head, measure)) for measure in measures},
        "roles": roles(head, analysis, layer["attention"]),
        "positional": _short(head["positional"]),
        "offsets": _short(head["offsets"]),
        "histogram": head["density_histogram"],
        "dependencies": _short(head["dependencies"]),
    }


def _value(head: dict[str, Any], measure: Measure) -> float | None:
    value: Any = head
    for key in measure.place:
        if value is None:
            return None
        value = value[key]
    return value


def _short(value: Any) -> Any:
    """The same with its numbers rounded."""
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def _sentence(entry: dict[str, Any]) -> dict[str, Any]:
    """The tokens of a sentence, and where each attention lies in its block of weights."""
    start = 0
    models = []
    for attentions in entry["models"]:
        places = []
        for item in attentions:
            heads, queries, keys = item["shape"]
            places.append(
                {
                    "attention": item["attention"],
                    "layer": item["layer"],
                    "heads": heads,
                    "queries": queries,
                    "keys": keys,
                    "start": start,
                }
            )
            start += heads * queries * keys
        models.append(places)
    return {
        "sentence": entry["sentence"],
        "source": entry["source"],
        "queries": entry["queries"],
        "targets": entry["targets"],
        "sourceText": joined_text(entry["source"]),
        "targetText": joined_text(entry["targets"]),
        "models": models,
    }


def joined_text(tokens: Sequence[str]) -> str:
    """The text that subwords were cut from, without the end of sentence.

    SentencePiece marks the start of a word by ``▁``, subword-nmt a word that goes on by a
    trailing ``@@``; tokens without either mark are words.
    """
    kept = [token for token in tokens if token != "</s>"]
    if any(token.startswith("▁") for token in kept):
        return "".join(kept).replace("▁", " ").strip()
    return (" ".join(kept) + " ").replace("@@ ", "").strip()


def weights_block(entry: dict[str, Any]) -> str:
    """Every weight of a sentence's maps in one byte: base64 of gzip.

    They follow each other as in ``entry``: model, attention and layer, head, query, key.
    """
    parts = [
        shades(_decoded(item)).tobytes() for attentions in entry["models"] for item in attentions
    ]
    # Without a time in it, the same analysis gives the same page
    return base64.b64encode(gzip.compress(b"".join(parts), 9, mtime=0)).decode("ascii")


def _decoded(item: dict[str, Any]) -> np.ndarray:
    raw = zlib.decompress(base64.b64decode(item["weights"]))
    return np.frombuffer(raw, "<f2").reshape(item["shape"])


def shades(weights: np.ndarray) -> np.ndarray:
    """Weights in [0, 1] as bytes, on a square-root scale.

    Exact zeros are 0. A weight above zero is ``round(255 sqrt(weight))``, at least 1: read
    back as ``(byte / 255)^2``, it is off by at most ``sqrt(weight) / 255 + 1 / 510^2``, 0.004 near 1.

    Args:
        weights: of any shape.

    Returns:
        uint8, of that shape.
    """
    bytes_ = np.rint(LEVELS * np.sqrt(weights.astype(np.float32)))
    return np.where(weights > 0, bytes_.clip(1, LEVELS), 0).astype(np.uint8)
